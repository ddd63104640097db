#include "lab/bench/allreduce/rank.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>

#include "net/io/fd.h"
#include "tensor/reduce.h"

namespace thalweg::lab::allreduce {
namespace {

constexpr std::array kTypes = {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64};
constexpr std::array kOps = {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax};

TEST(AllreduceRank, expectation__is_what_the_kernels_make_of_the_contributions) {
  for (const DType type : kTypes) {
    for (const ReduceOp op : kOps) {
      for (const int ranks : {1, 2, 5, kMaxRanks}) {
        std::vector<std::byte> sum = contribution(type, op, 0);
        for (int rank = 1; rank < ranks; ++rank) {
          const std::vector<std::byte> other = contribution(type, op, rank);
          tensor::reduce(type, op, sum.data(), sum.data(), other.data(),
                         sum.size() / size_of(type));
        }
        EXPECT_EQ(sum, expectation(type, op, ranks))
            << name_of(type) << " " << name_of(op) << " of " << ranks;
      }
    }
  }
}

TEST(AllreduceRank, contribution__differs_between_ranks_and_places) {
  const auto own = contribution(DType::kInt64, ReduceOp::kSum, 0);
  EXPECT_NE(own, contribution(DType::kInt64, ReduceOp::kSum, 1));
  std::vector<std::byte> moved(own.begin() + 256 * 8, own.end());
  EXPECT_NE(moved, std::vector<std::byte>(own.begin(), own.end() - 256 * 8));
}

TEST(AllreduceRank, count_wrong__counts_elements_also_in_the_last_part) {
  const auto pattern = contribution(DType::kFloat32, ReduceOp::kSum, 0);
  std::vector<std::byte> tensor(pattern.size() * 2 + 40);
  fill(tensor, pattern);
  EXPECT_EQ(count_wrong(tensor, pattern, DType::kFloat32), 0);
  tensor[0] ^= std::byte{1};
  tensor[1] ^= std::byte{1};
  tensor[pattern.size() + 4] ^= std::byte{1};
  tensor.back() ^= std::byte{1};
  EXPECT_EQ(count_wrong(tensor, pattern, DType::kFloat32), 3);
}

TEST(AllreduceRank, count_outside__allows_any_average_of_the_contributions) {
  for (const DType type : {DType::kFloat32, DType::kFloat64}) {
    // Results with two ranks: the sum, and twice what either contributed.
    std::vector<std::byte> tensor = expectation(type, ReduceOp::kSum, 2);
    EXPECT_EQ(count_outside(tensor, type, 2), 0);
    for (const int rank : {0, 1}) {
      tensor = contribution(type, ReduceOp::kSum, rank);
      const std::vector<std::byte> same = tensor;
      tensor::reduce(type, ReduceOp::kSum, tensor.data(), tensor.data(), same.data(),
                     tensor.size() / size_of(type));
      EXPECT_EQ(count_outside(tensor, type, 2), 0);
    }
    std::memset(tensor.data(), 0, 3 * size_of(type));
    EXPECT_EQ(count_outside(tensor, type, 2), 3);
    std::memset(tensor.data(), 0xff, size_of(type));  // not a number
    EXPECT_EQ(count_outside(tensor, type, 2), 3);
  }
}

TEST(AllreduceRank, parse__names_what_is_allowed) {
  EXPECT_EQ(parse_type("int64").value(), DType::kInt64);
  EXPECT_EQ(parse_op("max").value(), ReduceOp::kMax);
  EXPECT_NE(parse_type("int7").error().message().find("float32, float64"), std::string::npos);
  EXPECT_NE(parse_op("mean").error().message().find("sum, product"), std::string::npos);
}

// A rank in a thread, and the benchmark's end of its socket.
class Served {
 public:
  explicit Served(std::function<Status(void*, std::int64_t)> allreduce) {
    std::string folder = testing::TempDir() + "rank-XXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, (folder + "/s").c_str());
    const net::Fd listener(socket(AF_UNIX, SOCK_SEQPACKET, 0));
    EXPECT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener.get(), 1), 0);
    setenv(kControlVariable, address.sun_path, 1);
    thread_ = std::thread([this, allreduce = std::move(allreduce)] {
      served_ok_ = serve({.version = "fake", .allreduce = allreduce}).ok();
    });
    socket_ = net::Fd(accept(listener.get(), nullptr, nullptr));
    unlink(address.sun_path);
    rmdir(folder.c_str());
  }

  std::string hear() const {
    std::string text(kMaxMessage, '\0');
    text.resize(static_cast<std::size_t>(
        std::max<ssize_t>(recv(socket_.get(), text.data(), text.size(), 0), 0)));
    return text;
  }
  std::string ask(const std::string& message) const {
    send(socket_.get(), message.data(), message.size(), 0);
    return hear();
  }
  // Whether serve() had no error.
  bool end() {
    socket_.reset();
    thread_.join();
    return served_ok_;
  }

 private:
  net::Fd socket_;
  bool served_ok_ = false;
  std::thread thread_;
};

TEST(AllreduceRank, serve__says_hello_and_answers_with_as_many_times_as_calls) {
  int calls = 0;
  Served rank([&](void*, std::int64_t elements) {
    EXPECT_EQ(elements, 3000);
    ++calls;
    return ok_status();
  });
  EXPECT_EQ(rank.hear(), "hello 0 fake");
  std::istringstream words(rank.ask("measure 3000 2 5"));
  std::string verb;
  int wrong = -1;
  words >> verb >> wrong;
  EXPECT_EQ(verb, "measured");
  EXPECT_EQ(wrong, 0);
  int times = 0;
  for (std::int64_t ns = 0; words >> ns; ++times) EXPECT_GE(ns, 0);
  EXPECT_EQ(times, 5);
  EXPECT_EQ(calls, 1 + 2 + 5 + 1);
  EXPECT_TRUE(rank.ask("idle 10").starts_with("idle 0."));
  EXPECT_TRUE(rank.end());
}

TEST(AllreduceRank, serve__counts_what_the_library_gets_wrong) {
  int calls = 0;
  // Only the last call, after those that are timed, is wrong.
  Served rank([&](void* data, std::int64_t elements) {
    if (++calls == 9) static_cast<float*>(data)[elements - 1] += 1;
    return ok_status();
  });
  rank.hear();
  EXPECT_TRUE(rank.ask("measure 3000 2 5").starts_with("measured 1 "));
  EXPECT_TRUE(rank.end());
}

TEST(AllreduceRank, serve__reports_a_failed_call_and_a_message_it_does_not_know) {
  Served failing([](void*, std::int64_t) -> Status { return Error("the peer has left"); });
  failing.hear();
  EXPECT_EQ(failing.ask("measure 1 1 1"), "failed the peer has left");
  EXPECT_FALSE(failing.end());
  Served asked([](void*, std::int64_t) { return ok_status(); });
  asked.hear();
  EXPECT_TRUE(asked.ask("measure 1 1 999999").starts_with("failed "));
  EXPECT_FALSE(asked.end());
}

}  // namespace
}  // namespace thalweg::lab::allreduce
