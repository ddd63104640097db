// All ranks of whatever started this program meet in the store. Alone it is a job of one;
// tests/cli/test_launchers.py runs it under the launchers.
#include <gtest/gtest.h>

#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "net/io/system.h"
#include "net/job/environment.h"
#include "net/job/interfaces.h"
#include "net/job/job.h"
#include "net/store/store_client.h"
#include "net/store/store_server.h"

namespace thalweg::net {
namespace {

TEST(Meeting, environment__all_ranks_meet) {
  const Result<Environment> e = environment_from(process_environment());
  ASSERT_TRUE(e.ok()) << e.error().message();
  const Time deadline = monotonic_now() + Duration::milliseconds(20'000);
  const Result<std::shared_ptr<Job>> job = Job::join({}, deadline);
  ASSERT_TRUE(job.ok()) << job.error().message();
  const bool random = e->size > 1 && e->one_host && e->rank0_starts_store && !e->token_desk.empty();
  EXPECT_EQ((*job)->environment.token != e->token, random);
  if ((*job)->client == nullptr) {
    ASSERT_EQ(e->size, 1);
    StoreServer server = StoreServer::start("127.0.0.1:0", e->token).value();
    StoreClient client = StoreClient::connect(server.address(), e->token, deadline).value();
    (*job)->own_address = client.local_address();
    (*job)->client = std::make_unique<StoreClient>(std::move(client));
    (*job)->server = std::move(server);
  }
  Store* const client = (*job)->client.get();
  const auto addresses = rank_addresses(e->interfaces, (*job)->own_address);
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
  if ((*job)->server) {
    EXPECT_TRUE(client->wait("all have left", deadline).ok());
  }
  // The output is for the test that counts the ranks that met.
  std::cout << "met as rank " << e->rank << " of " << e->size << " under '" << e->launcher << "'\n";
}

}  // namespace
}  // namespace thalweg::net
