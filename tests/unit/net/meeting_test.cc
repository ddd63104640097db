// All ranks of whatever started this program meet in the store. Alone it is a job of one;
// tests/cli/test_launchers.py runs it under the launchers.
#include <gtest/gtest.h>

#include <iostream>
#include <optional>

#include "net/io/system.h"
#include "net/job/environment.h"
#include "net/job/interfaces.h"
#include "net/store/store_client.h"
#include "net/store/store_server.h"

namespace thalweg::net {
namespace {

TEST(Meeting, environment__all_ranks_meet) {
  const Result<Environment> e = environment_from(process_environment());
  ASSERT_TRUE(e.ok()) << e.error().message();
  std::string address = e->store;
  std::optional<StoreServer> server;
  if (e->rank == 0 && e->rank0_starts_store) {
    const std::string listen =
        address.empty() ? "127.0.0.1:0" : store_listen_address(address).value();
    Result<StoreServer> started = StoreServer::start(listen, e->token);
    ASSERT_TRUE(started.ok()) << started.error().message();
    server = std::move(*started);
    if (address.empty()) address = server->address();
  }
  const Time deadline = monotonic_now() + Duration::milliseconds(20'000);
  Result<StoreClient> client = StoreClient::connect(address, e->token, deadline);
  ASSERT_TRUE(client.ok()) << client.error().message();
  const auto addresses = rank_addresses(e->interfaces, client->local_address());
  ASSERT_TRUE(addresses.ok()) << addresses.error().message();
  const std::string mine = "rank " + std::to_string(e->rank);
  ASSERT_TRUE(client->set(mine, addresses->at(0).to_string(), deadline).ok());
  for (int rank = 0; rank < e->size; ++rank) {
    EXPECT_TRUE(client->get("rank " + std::to_string(rank), deadline).ok()) << rank;
  }
  // Rank 0 leaves last, because the store may run in its process.
  const auto left = client->add("left", 1, deadline);
  ASSERT_TRUE(left.ok()) << left.error().message();
  if (*left == e->size) {
    EXPECT_TRUE(client->set("all have left", "", deadline).ok());
  }
  if (server) {
    EXPECT_TRUE(client->wait("all have left", deadline).ok());
  }
  // The output is for the test that counts the ranks that met.
  std::cout << "met as rank " << e->rank << " of " << e->size << " under '" << e->launcher << "'\n";
}

}  // namespace
}  // namespace thalweg::net
