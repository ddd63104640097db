// Sends a gradient from one process to another, with a bounded loss.
//
//   two_processes recv 127.0.0.1:7000            in one shell
//   two_processes send 127.0.0.1:7000            in another; either may start first
//
// Options, the same at both ends: --floats N, --bound P, --rounds N, --token T, --key-file FILE
// (its first line is the job key). --record FOLDER records the connection, for `thalweg trace
// replay`.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <thalweg/endpoint.h>

using namespace std::chrono_literals;
using thalweg::Endpoint;
using thalweg::EndpointOptions;
using thalweg::Peer;
using thalweg::Result;
using thalweg::TensorSpan;
using thalweg::TensorView;
using thalweg::Transfer;
using thalweg::TransferReport;

namespace {

struct Arguments {
  bool sending = false;
  std::string address;
  std::size_t floats = 1 << 20;
  double bound = 0.02;
  std::uint64_t rounds = 10;
  std::uint64_t token = 42;  // a real job draws a random one and gives it to all its processes
  std::string key_file;      // empty: nothing is authenticated
  std::string record;        // empty: nothing is recorded
};

[[noreturn]] void fail(const std::string& text, int code) {
  std::fprintf(stderr, "two_processes: %s\n", text.c_str());
  std::exit(code);
}

Arguments parse(int argc, char** argv) {
  const char* usage =
      "usage: two_processes send|recv HOST:PORT [--floats N] [--bound P] [--rounds N] [--token T] "
      "[--key-file FILE] [--record FOLDER]";
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 2 || words.size() % 2 != 0) fail(usage, 2);
  if (words[0] != "send" && words[0] != "recv") fail(usage, 2);
  Arguments arguments;
  arguments.sending = words[0] == "send";
  arguments.address = words[1];
  for (std::size_t i = 2; i < words.size(); i += 2) {
    char* end = nullptr;
    const char* value = words[i + 1].c_str();
    if (words[i] == "--key-file" || words[i] == "--record") {
      (words[i] == "--record" ? arguments.record : arguments.key_file) = value;
      continue;
    }
    if (words[i] == "--floats") {
      arguments.floats = std::strtoull(value, &end, 10);
    } else if (words[i] == "--bound") {
      arguments.bound = std::strtod(value, &end);
    } else if (words[i] == "--rounds") {
      arguments.rounds = std::strtoull(value, &end, 10);
    } else if (words[i] == "--token") {
      arguments.token = std::strtoull(value, &end, 10);
    } else {
      fail(usage, 2);
    }
    if (*value == '\0' || *end != '\0') fail(words[i] + ": '" + value + "' is no number", 2);
  }
  return arguments;
}

// Returns the value, or ends the program and prints the error.
template <class T>
T value_of(Result<T> result) {
  if (!result.ok()) fail(result.error().message(), 1);
  return std::move(result).value();
}

// Element i of round r, by which the receiver checks what it got.
float element(std::uint64_t round, std::size_t i) {
  return static_cast<float>(round) + static_cast<float>(i % 1000) * 0.001F;
}

void send(const Arguments& arguments, const Peer& peer) {
  std::vector<float> gradient(arguments.floats);
  for (std::uint64_t round = 0; round < arguments.rounds; ++round) {
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = element(round, i);
    const Transfer transfer = value_of(
        peer.send(TensorView::of(gradient), {.key = round, .loss_bound = arguments.bound}));
    const TransferReport report = value_of(transfer.wait());
    std::printf("round %llu: sent, %.2f %% arrived, %llu packets again\n",
                static_cast<unsigned long long>(round), report.fraction * 100,
                static_cast<unsigned long long>(report.retransmissions));
  }
}

void receive(const Arguments& arguments, const Peer& peer) {
  for (std::uint64_t round = 0; round < arguments.rounds; ++round) {
    // Elements that do not arrive keep their value: 0 here, in training the worker's own gradient.
    std::vector<float> gradient(arguments.floats, 0.0F);
    const Transfer transfer = value_of(
        peer.recv(TensorSpan::of(gradient), {.key = round, .loss_bound = arguments.bound}));
    const TransferReport report = value_of(transfer.wait());
    std::size_t missing = 0;
    auto hole = report.missing.begin();
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      while (hole != report.missing.end() && hole->end <= static_cast<std::int64_t>(i)) ++hole;
      const bool lost = hole != report.missing.end() && hole->begin <= static_cast<std::int64_t>(i);
      missing += lost ? 1U : 0U;
      if (gradient[i] != (lost ? 0.0F : element(round, i))) fail("a value is wrong", 1);
    }
    std::printf("round %llu: %.2f %% arrived in %.2f ms, %zu of %zu values missing, rest right\n",
                static_cast<unsigned long long>(round), report.fraction * 100,
                std::chrono::duration<double, std::milli>(report.time).count(), missing,
                gradient.size());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  EndpointOptions options;
  options.job_token = arguments.token;
  if (!arguments.key_file.empty()) {
    options.job_key = value_of(thalweg::read_job_key(arguments.key_file));
  }
  options.record_folder = arguments.record;
  options.name = arguments.sending ? "sender" : "receiver";
  if (!arguments.sending) options.listen = arguments.address;
  const Endpoint endpoint = value_of(Endpoint::create(options));
  const Peer peer =
      value_of(arguments.sending ? endpoint.connect(arguments.address, 10s) : endpoint.accept(10s));
  std::printf("connected to %s, %zu bytes a packet\n", peer.name().c_str(), peer.packet_payload());
  if (arguments.sending) {
    send(arguments, peer);
  } else {
    receive(arguments, peer);
  }
}
