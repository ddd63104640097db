// The options of the C API: their defaults are those of the C++ API, and each reaches its field.
#include <thalweg/thalweg.h>
#include <thalweg/thalweg_endpoint.h>

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "capi/arguments.h"
#include "capi/codes.h"
#include "capi/endpoint_options.h"
#include "capi/on_ranks.h"

namespace thalweg::capi {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

CommunicatorOptions given(const thalweg_options& options) {
  Result<CommunicatorOptions> made = options_of(&options);
  EXPECT_TRUE(made.ok()) << made.error().message();
  return *std::move(made);
}

EndpointOptions given(const thalweg_endpoint_options& options) {
  Result<EndpointOptions> made = endpoint_options_of(&options);
  EXPECT_TRUE(made.ok()) << made.error().message();
  return *std::move(made);
}

TEST(CApiOptions, of_a_communicator__have_the_defaults_of_the_cpp_api) {
  thalweg_options options;
  thalweg_options_init(&options);
  const CommunicatorOptions made = given(options);
  const CommunicatorOptions usual;
  EXPECT_EQ(made.rank, usual.rank);
  EXPECT_EQ(made.size, usual.size);
  EXPECT_EQ(made.group, usual.group);
  EXPECT_EQ(made.join, usual.join);
  EXPECT_EQ(made.timeout, usual.timeout);
  EXPECT_EQ(made.transport, usual.transport);
  EXPECT_EQ(made.shared_memory, usual.shared_memory);
  EXPECT_EQ(made.interfaces, usual.interfaces);
  EXPECT_EQ(made.streams, usual.streams);
  EXPECT_EQ(made.channels, usual.channels);
  EXPECT_EQ(made.channel_bytes, usual.channel_bytes);
  EXPECT_EQ(made.dlcp_payload, usual.dlcp_payload);
  EXPECT_EQ(made.dlcp_paths, usual.dlcp_paths);
  EXPECT_EQ(made.dlcp_line_rate_gbps, usual.dlcp_line_rate_gbps);
  EXPECT_EQ(made.atp_servers, usual.atp_servers);
  EXPECT_EQ(made.atp_elements, usual.atp_elements);
}

TEST(CApiOptions, of_a_communicator__reach_their_fields) {
  thalweg_options options;
  thalweg_options_init(&options);
  options.channels = 2;
  options.channel_bytes = 1000;
  options.dlcp_payload = 1024;
  options.dlcp_paths = 3;
  options.dlcp_line_rate_gbps = 2.5;
  options.atp_servers = 2;
  options.atp_elements = 64;
  const CommunicatorOptions made = given(options);
  EXPECT_EQ(made.channels, 2);
  EXPECT_EQ(made.channel_bytes, 1000U);
  EXPECT_EQ(made.dlcp_payload, 1024U);
  EXPECT_EQ(made.dlcp_paths, 3U);
  EXPECT_EQ(made.dlcp_line_rate_gbps, 2.5);
  EXPECT_EQ(made.atp_servers, 2);
  EXPECT_EQ(made.atp_elements, 64U);
}

TEST(CApiOptions, of_an_endpoint__have_the_defaults_of_the_cpp_api) {
  thalweg_endpoint_options options;
  thalweg_endpoint_options_init(&options);
  const EndpointOptions made = given(options);
  const EndpointOptions usual;
  EXPECT_EQ(made.packet_payload, usual.packet_payload);
  EXPECT_EQ(made.line_rate_gbps, usual.line_rate_gbps);
  EXPECT_EQ(made.paths, usual.paths);
  EXPECT_EQ(made.receive_buffer_bytes, usual.receive_buffer_bytes);
  EXPECT_EQ(made.send_buffer_bytes, usual.send_buffer_bytes);
  EXPECT_EQ(made.peer_timeout, usual.peer_timeout);
  EXPECT_EQ(made.grace.initial, usual.grace.initial);
  EXPECT_EQ(made.grace.least, usual.grace.least);
  EXPECT_EQ(made.grace.most, usual.grace.most);
  EXPECT_EQ(made.grants, usual.grants);
  EXPECT_EQ(made.grants_round_trip, usual.grants_round_trip);
  EXPECT_EQ(made.dscp, usual.dscp);
  EXPECT_EQ(made.checksum, usual.checksum);
  EXPECT_EQ(made.offload, usual.offload);
}

TEST(CApiOptions, of_an_endpoint__reach_their_fields) {
  thalweg_endpoint_options options;
  thalweg_endpoint_options_init(&options);
  options.receive_buffer_bytes = 5;
  options.send_buffer_bytes = 6;
  options.grace_initial_s = 0.002;
  options.grace_least_s = 3e-6;
  options.grace_most_s = 4;
  options.grants = 1;
  options.grants_round_trip_s = 2e-4;
  options.dscp[0] = 62;
  options.dscp[7] = 1;
  options.offload = 0;
  const EndpointOptions made = given(options);
  EXPECT_EQ(made.receive_buffer_bytes, 5U);
  EXPECT_EQ(made.send_buffer_bytes, 6U);
  EXPECT_EQ(made.grace.initial, milliseconds(2));
  EXPECT_EQ(made.grace.least, microseconds(3));
  EXPECT_EQ(made.grace.most, std::chrono::seconds(4));
  EXPECT_TRUE(made.grants);
  EXPECT_EQ(made.grants_round_trip, microseconds(200));
  EXPECT_EQ(made.dscp, (DscpTable{62, 51, 43, 35, 27, 19, 11, 1}));
  EXPECT_FALSE(made.offload);
}

TEST(CApiOptions, of_an_endpoint__that_are_wrong__are_refused) {
  thalweg_endpoint* made = nullptr;
  const auto refused = [&](const char* word, const auto& change) {
    thalweg_endpoint_options options;
    thalweg_endpoint_options_init(&options);
    change(options);
    expect_refused(thalweg_endpoint_create(&options, &made), word);
    EXPECT_EQ(made, nullptr);
  };
  refused("grace_initial_s: 0", [](auto& options) { options.grace_initial_s = 0; });
  refused("grace_least_s: nan", [](auto& options) { options.grace_least_s = std::nan(""); });
  refused("grace.initial: 200000000 ns", [](auto& options) { options.grace_initial_s = 0.2; });
  refused("grace.most: 7200", [](auto& options) { options.grace_most_s = 7200; });
  refused("dscp: 64; from 0 to 63", [](auto& options) { options.dscp[3] = 64; });
  refused("grants_round_trip_s: -1", [](auto& options) { options.grants_round_trip_s = -1; });
  refused("grants_round_trip: 11000000000 ns",
          [](auto& options) { options.grants_round_trip_s = 11; });
  refused("grants: the rate of this host's link is not known",
          [](auto& options) { options.grants = 1; });
}

TEST(CApiOptions, of_an_endpoint__ask_for_buffers) {
  thalweg_endpoint_options options;
  thalweg_endpoint_options_init(&options);
  options.listen = "127.0.0.1:0";
  options.receive_buffer_bytes = std::size_t{4} << 30;  // more than Linux can give
  std::string said;
  options.warn = [](const char* text, void* context) {
    *static_cast<std::string*>(context) += text;
  };
  options.warn_context = &said;
  thalweg_endpoint* listening = nullptr;
  thalweg_endpoint* connecting = nullptr;
  thalweg_peer* peer = nullptr;
  expect_ok(thalweg_endpoint_create(&options, &listening));
  options.listen = nullptr;
  expect_ok(thalweg_endpoint_create(&options, &connecting));
  const char* address = nullptr;
  expect_ok(thalweg_endpoint_address(listening, &address));
  expect_ok(thalweg_endpoint_connect(connecting, address, 10, &peer));
  thalweg_endpoint_destroy(connecting);
  thalweg_endpoint_destroy(listening);
  thalweg_peer_free(peer);
  EXPECT_NE(said.find("instead of 4294967296"), std::string::npos) << said;
}

TEST(CApiOptions, of_a_communicator__that_are_wrong__are_refused_on_all_ranks) {
  // No rank waits for another one, which is refused, too.
  const auto refused = [](const std::string& word, const ChangeOptions& change) {
    create_on_ranks(change, [&](int code) { expect_refused(code, word); }, {});
  };
  refused("channel_bytes: 0", [](auto& options) { options.channel_bytes = 0; });
  refused("dlcp_payload: -2", [](auto& options) { options.dlcp_payload = -2; });
  refused("THALWEG_DLCP_PAYLOAD", [](auto& options) { options.dlcp_payload = 1001; });
  refused("THALWEG_DLCP_PATHS", [](auto& options) { options.dlcp_paths = 33; });
  refused("dlcp_line_rate_gbps: -1", [](auto& options) { options.dlcp_line_rate_gbps = -1; });
  refused("dlcp_line_rate_gbps: nan",
          [](auto& options) { options.dlcp_line_rate_gbps = std::nan(""); });
  refused("atp_elements: 0", [](auto& options) {
    options.transport = THALWEG_ATP;
    options.atp_elements = 0;
  });
}

TEST(CApiOptions, of_a_communicator__carry_sums_over_dlcp) {
  on_ranks(
      [](thalweg_communicator* all, int rank) {
        std::vector<std::int32_t> values(5'000, rank + 1);
        expect_ok(thalweg_allreduce(all, values.data(), values.data(), 5'000, THALWEG_INT32,
                                    THALWEG_SUM, nullptr));
        EXPECT_EQ(values, std::vector<std::int32_t>(5'000, 6));
      },
      [](thalweg_options& options) {
        options.transport = THALWEG_DLCP;
        options.dlcp_payload = 512;
        options.dlcp_paths = 2;
        options.dlcp_line_rate_gbps = 1;
      });
}

}  // namespace
}  // namespace thalweg::capi
