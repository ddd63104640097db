// A program outside of the tree: sums and an error by the C++ API, and a transfer over DLCP.
#include <thalweg/communicator.h>
#include <thalweg/endpoint.h>
#include <thalweg/parameter_client.h>
#include <thalweg/thalweg.h>
#include <thalweg/version.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

using namespace thalweg;

namespace {

int fail(const Error& error) {
  std::fprintf(stderr, "%s: %s\n", name_of(error.code()), error.message().c_str());
  return 1;
}

// Two endpoints of this process send a tensor to each other.
int transfer() {
  using namespace std::chrono_literals;
  Result<Endpoint> here = Endpoint::create({.listen = "127.0.0.1:0", .job_token = 7});
  if (!here.ok()) return fail(here.error());
  Result<Endpoint> there = Endpoint::create({.job_token = 7});
  if (!there.ok()) return fail(there.error());
  const Result<Peer> to = there->connect(here->address(), 10s);
  if (!to.ok()) return fail(to.error());
  const Result<Peer> from = here->accept(10s);
  if (!from.ok()) return fail(from.error());
  const std::vector<float> sent(1000, 2.5F);
  std::vector<float> received(1000);
  const Result<Transfer> receive = from->recv(TensorSpan::of(received), {.key = 1});
  const Result<Transfer> send = to->send(TensorView::of(sent), {.key = 1});
  if (!receive.ok()) return fail(receive.error());
  if (!send.ok()) return fail(send.error());
  const Result<TransferReport> report = receive->wait();
  if (!report.ok()) return fail(report.error());
  if (const auto over = send->wait(); !over.ok()) return fail(over.error());
  return received == sent ? 0 : 1;
}

}  // namespace

int main() {
  Result<Communicator> created = Communicator::create({});
  if (!created.ok()) return fail(created.error());
  Communicator all = std::move(*created);
  std::vector<double> values(1000, 1.0 + all.rank());
  if (const Status done = all.allreduce(TensorSpan::of(values)); !done.ok()) {
    return fail(done.error());
  }
  Result<Operation> later = all.allreduce_async(TensorSpan::of(values), {.op = ReduceOp::kMean});
  if (!later.ok()) return fail(later.error());
  if (const Status done = later->wait(); !done.ok()) return fail(done.error());

  const Status wrong = all.broadcast(TensorSpan::of(values), all.size());
  if (wrong.ok() || wrong.error().code() != ErrorCode::kBadArgument) return 1;
  const auto server = ParameterClient::connect(
      {.server = "127.0.0.1:1", .timeout = std::chrono::milliseconds(200)});
  if (server.ok() || read_job_key("/no/such/file").ok()) return 1;
  if (transfer() != 0) return 1;
  std::printf("rank %d of %d: sum %g, library %s, header %s\n", all.rank(), all.size(), values[999],
              thalweg_version_text(), kVersion);
  return 0;
}
