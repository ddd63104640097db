// The C API: what it returns for good calls, and that bad arguments give a code and a text.
#include <thalweg/thalweg.h>

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include <thalweg/result.h>
#include <thalweg/version.h>

#include "capi/codes.h"
#include "net/ranks.h"

namespace thalweg::capi {
namespace {

// A communicator of one rank, for calls that fail before anything is sent.
class CApiArguments : public testing::Test {
 protected:
  void SetUp() override {
    thalweg_options options;
    thalweg_options_init(&options);
    options.rank = 0;
    options.size = 1;
    store_ = net::free_address();
    options.store = store_.c_str();
    ASSERT_EQ(thalweg_create(&options, &all_), THALWEG_OK) << thalweg_last_error();
  }
  void TearDown() override { thalweg_destroy(all_); }

  thalweg_communicator* all_ = nullptr;
  std::array<float, 4> values_ = {1, 2, 3, 4};

 private:
  std::string store_;
};

constexpr int kFloat = THALWEG_FLOAT32;

TEST_F(CApiArguments, null_communicator__every_call_is_refused) {
  thalweg_communicator* none = nullptr;
  thalweg_communicator* made = all_;
  thalweg_operation* started = nullptr;
  float* data = values_.data();
  int number = 0;
  const std::vector<int> codes = {
      thalweg_rank(none, &number),
      thalweg_size(none, &number),
      thalweg_split(none, 0, 0, nullptr, &made),
      thalweg_grow(none, nullptr, &made),
      thalweg_shrink(none, 1, &made),
      thalweg_allreduce(none, data, data, 4, kFloat, THALWEG_SUM, nullptr),
      thalweg_reduce(none, data, 4, kFloat, THALWEG_SUM, 0, nullptr),
      thalweg_broadcast(none, data, 4, kFloat, 0, nullptr),
      thalweg_all_gather(none, data, data, 4, kFloat, nullptr),
      thalweg_reduce_scatter(none, data, data, 4, kFloat, THALWEG_SUM, nullptr),
      thalweg_all_to_all(none, data, data, 4, kFloat, nullptr),
      thalweg_gather(none, data, data, 4, kFloat, 0, nullptr),
      thalweg_scatter(none, data, data, 4, kFloat, 0, nullptr),
      thalweg_barrier(none, nullptr),
      thalweg_send(none, data, 4, kFloat, 0, 0, nullptr),
      thalweg_recv(none, data, 4, kFloat, 0, 0, nullptr, nullptr),
      thalweg_allreduce_async(none, data, data, 4, kFloat, THALWEG_SUM, nullptr, &started),
      thalweg_reduce_async(none, data, 4, kFloat, THALWEG_SUM, 0, nullptr, &started),
      thalweg_broadcast_async(none, data, 4, kFloat, 0, nullptr, &started),
      thalweg_all_gather_async(none, data, data, 4, kFloat, nullptr, &started),
      thalweg_reduce_scatter_async(none, data, data, 4, kFloat, THALWEG_SUM, nullptr, &started),
      thalweg_all_to_all_async(none, data, data, 4, kFloat, nullptr, &started),
      thalweg_gather_async(none, data, data, 4, kFloat, 0, nullptr, &started),
      thalweg_scatter_async(none, data, data, 4, kFloat, 0, nullptr, &started),
      thalweg_barrier_async(none, nullptr, &started),
      thalweg_send_async(none, data, 4, kFloat, 0, 0, nullptr, &started),
      thalweg_recv_async(none, data, 4, kFloat, 0, 0, nullptr, &started),
  };
  for (const int code : codes) expect_refused(code, "communicator: a null pointer");
  EXPECT_EQ(made, nullptr);
  EXPECT_EQ(started, nullptr);
  EXPECT_EQ(thalweg_last_error_rank(), -1);
}

TEST_F(CApiArguments, null_results__are_refused) {
  expect_refused(thalweg_create(nullptr, nullptr), "made: a null pointer");
  expect_refused(thalweg_split(all_, 0, 0, nullptr, nullptr), "made: a null pointer");
  expect_refused(thalweg_shrink(all_, 1, nullptr), "made: a null pointer");
  expect_refused(thalweg_rank(all_, nullptr), "rank: a null pointer");
  expect_refused(thalweg_size(all_, nullptr), "size: a null pointer");
  expect_refused(thalweg_barrier_async(all_, nullptr, nullptr), "started: a null pointer");
}

TEST_F(CApiArguments, null_operation__is_refused) {
  int number = 0;
  expect_refused(thalweg_wait(nullptr), "operation: a null pointer");
  expect_refused(thalweg_test(nullptr, &number), "operation: a null pointer");
  expect_refused(thalweg_sender(nullptr, &number), "operation: a null pointer");
  thalweg_free(nullptr);
  thalweg_destroy(nullptr);
  thalweg_options_init(nullptr);
  thalweg_call_options_init(nullptr);
}

TEST_F(CApiArguments, tensors__that_cannot_be__are_refused) {
  float* data = values_.data();
  const auto sum = [&](const void* in, void* out, std::int64_t elements, int type, int op) {
    return thalweg_allreduce(all_, in, out, elements, type, op, nullptr);
  };
  expect_refused(sum(nullptr, data, 4, kFloat, THALWEG_SUM), "without memory");
  expect_refused(sum(data, nullptr, 4, kFloat, THALWEG_SUM), "without memory");
  expect_refused(sum(data, data, -1, kFloat, THALWEG_SUM), "elements: -1");
  expect_refused(sum(data, data, INT64_MAX, kFloat, THALWEG_SUM), "elements: 9223372036854775807");
  expect_refused(sum(data, data, 4, -1, THALWEG_SUM), "type: -1; from 0 to 9");
  expect_refused(sum(data, data, 4, 10, THALWEG_SUM), "type: 10; from 0 to 9");
  expect_refused(sum(data, data, 4, kFloat, 5), "op: 5; from 0 to 4");
  expect_refused(thalweg_gather(all_, data, nullptr, 4, kFloat, 0, nullptr), "without memory");
  expect_refused(thalweg_all_gather(all_, data, data, INT64_MAX / 2, kFloat, nullptr), "elements");
  EXPECT_EQ(sum(nullptr, nullptr, 0, kFloat, THALWEG_SUM), THALWEG_OK) << thalweg_last_error();
}

TEST_F(CApiArguments, ranks_and_tags__that_do_not_exist__are_refused) {
  float* data = values_.data();
  thalweg_communicator* made = nullptr;
  expect_refused(thalweg_broadcast(all_, data, 4, kFloat, 1, nullptr), "root: 1");
  expect_refused(thalweg_reduce(all_, data, 4, kFloat, THALWEG_SUM, -1, nullptr), "root: -1");
  EXPECT_EQ(thalweg_send(all_, data, 4, kFloat, 7, 0, nullptr), THALWEG_BAD_ARGUMENT);
  EXPECT_EQ(thalweg_send(all_, data, 4, kFloat, 0, -3, nullptr), THALWEG_BAD_ARGUMENT);
  EXPECT_EQ(thalweg_recv(all_, data, 4, kFloat, -2, 0, nullptr, nullptr), THALWEG_BAD_ARGUMENT);
  expect_refused(thalweg_split(all_, -2, 0, nullptr, &made), "color: -2");
}

TEST_F(CApiArguments, call_options__that_are_wrong__are_refused) {
  const auto refused = [&](const char* word, const auto& change) {
    thalweg_call_options options;
    thalweg_call_options_init(&options);
    change(options);
    expect_refused(thalweg_barrier(all_, &options), word);
  };
  refused("thalweg_call_options_init()", [](auto& options) { options = {}; });
  refused("timeout_s: 0", [](auto& options) { options.timeout_s = 0; });
  refused("timeout_s: nan", [](auto& options) { options.timeout_s = std::nan(""); });
  refused("transport: 4", [](auto& options) { options.transport = 4; });
  refused("dlcp_queue: 257", [](auto& options) { options.dlcp_queue = 257; });
}

TEST_F(CApiArguments, options__that_are_wrong__are_refused) {
  const auto refused = [&](const char* word, const auto& change) {
    thalweg_options options;
    thalweg_options_init(&options);
    options.rank = 0;
    options.size = 1;
    change(options);
    thalweg_communicator* made = all_;
    expect_refused(thalweg_create(&options, &made), word);
    EXPECT_EQ(made, nullptr);
  };
  refused("thalweg_options_init()", [](auto& options) { options = {}; });
  refused("rank: -2", [](auto& options) { options.rank = -2; });
  refused("timeout_s: -1", [](auto& options) { options.timeout_s = -1; });
  refused("transport: -1", [](auto& options) { options.transport = -1; });
  refused("scheme", [](auto& options) { options.scheme = "no-such-scheme"; });
}

TEST(CApi, codes__have_the_names_of_the_cpp_api) {
  EXPECT_STREQ(thalweg_code_name(THALWEG_OK), "ok");
  EXPECT_STREQ(thalweg_code_name(THALWEG_PEER_LOST), name_of(ErrorCode::kPeerLost));
  EXPECT_STREQ(thalweg_code_name(THALWEG_INTERNAL), name_of(ErrorCode::kInternal));
  EXPECT_STREQ(thalweg_code_name(THALWEG_INTERNAL + 1), "?");
  EXPECT_STREQ(thalweg_code_name(-1), "?");
}

TEST(CApi, version__is_that_of_the_header) {
  EXPECT_EQ(thalweg_version(),
            10000 * THALWEG_VERSION_MAJOR + 100 * THALWEG_VERSION_MINOR + THALWEG_VERSION_PATCH);
  EXPECT_STREQ(thalweg_version_text(), kVersion);
}

TEST(CApi, errors__are_those_of_their_thread) {
  EXPECT_EQ(thalweg_wait(nullptr), THALWEG_BAD_ARGUMENT);
  std::thread([] { EXPECT_STREQ(thalweg_last_error(), ""); }).join();
  EXPECT_STRNE(thalweg_last_error(), "");
}

}  // namespace
}  // namespace thalweg::capi
