// Two endpoints in one process, connected over loopback.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <thalweg/endpoint.h>

#include "base/prng.h"
#include "net/dlcp/test_faults.h"

namespace thalweg::net {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline constexpr std::uint64_t kToken = 0x1234'5678'9abc'def0;

inline EndpointOptions test_options(const std::string& name) {
  EndpointOptions options;
  options.name = name;
  options.job_token = kToken;
  options.packet_payload = 1400;
  options.line_rate_gbps = 10;
  options.warn = [](const std::string&) {};
  return options;
}

inline Result<Endpoint> create_lossy(const EndpointOptions& options, const LosePacket& lose) {
  const ScopedLoss loss(lose);
  return Endpoint::create(options);
}

// Which of the packets that it sends each end loses.
struct PairLoss {
  LosePacket server = {};
  LosePacket client = {};
};

// `server` listens and accepts, `client` connects.
struct NetPair {
  Endpoint server;
  Endpoint client;
  Peer at_server;  // the server's handle of the client
  Peer at_client;

  static NetPair make(EndpointOptions server_options, const EndpointOptions& client_options,
                      const PairLoss& loss = {}) {
    if (server_options.listen.empty()) server_options.listen = "127.0.0.1:0";
    Result<Endpoint> server = create_lossy(server_options, loss.server);
    EXPECT_TRUE(server.ok()) << server.error().message();
    Result<Endpoint> client = create_lossy(client_options, loss.client);
    EXPECT_TRUE(client.ok()) << client.error().message();
    Result<Peer> there = client->connect(server->address(), seconds(5));
    EXPECT_TRUE(there.ok()) << there.error().message();
    Result<Peer> here = server->accept(seconds(5));
    EXPECT_TRUE(here.ok()) << here.error().message();
    return {std::move(*server), std::move(*client), *here, *there};
  }
  static NetPair make() { return make(test_options("server"), test_options("client")); }
};

inline std::vector<float> random_floats(std::size_t count, Prng& prng) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(prng.real() - 0.5);
  return values;
}

// Whether the text contains this part.
inline testing::AssertionResult says(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << text << "' does not say '" << part << "'";
}

// The error of a transfer, or of its start; empty if it succeeded.
inline std::string error_of(const Result<Transfer>& transfer) {
  if (!transfer.ok()) return transfer.error().message();
  const Result<TransferReport> report = transfer->wait();
  return report.ok() ? "" : report.error().message();
}

}  // namespace thalweg::net
