// Calls that are made of other calls: blocking calls, allreduce out of place, messages, split and
// grow.
#include <fmt/core.h>

#include <array>
#include <cstring>
#include <utility>

#include <thalweg/communicator.h>

#include "net/group/api/communicator_core.h"
#include "net/group/api/layout.h"
#include "net/io/system.h"

namespace thalweg {
namespace {

Status wait_for(const Result<Operation>& operation) {
  return operation.ok() ? operation->wait() : Status(operation.error());
}

}  // namespace

Result<Operation> Communicator::allreduce_async(TensorView in, TensorSpan out,
                                                const CallOptions& options) const {
  THALWEG_TRY_STATUS(net::check("allreduce", in.data, in.elements));
  THALWEG_TRY_STATUS(net::check("allreduce", out.data, out.elements));
  THALWEG_TRY_STATUS(net::check_same_type("allreduce", in.type, out.type));
  if (in.elements != out.elements) {
    return Error(fmt::format("allreduce: the input has {} elements, the output {}", in.elements,
                             out.elements));
  }
  const std::size_t bytes = static_cast<std::size_t>(in.elements) * size_of(in.type);
  if (bytes > 0) std::memmove(out.data, in.data, bytes);
  return allreduce_async(out, options);
}

Status Communicator::allreduce(TensorView in, TensorSpan out, const CallOptions& options) const {
  return wait_for(allreduce_async(in, out, options));
}

Status Communicator::reduce(TensorSpan tensor, int root, const CallOptions& options) const {
  return wait_for(reduce_async(tensor, root, options));
}

Status Communicator::broadcast(TensorSpan tensor, int root, const CallOptions& options) const {
  return wait_for(broadcast_async(tensor, root, options));
}

Status Communicator::all_gather(TensorView in, TensorSpan out, const CallOptions& options) const {
  return wait_for(all_gather_async(in, out, options));
}

Status Communicator::reduce_scatter(TensorView in, TensorSpan out,
                                    const CallOptions& options) const {
  return wait_for(reduce_scatter_async(in, out, options));
}

Status Communicator::all_to_all(TensorView in, TensorSpan out, const CallOptions& options) const {
  return wait_for(all_to_all_async(in, out, options));
}

Status Communicator::gather(TensorView in, TensorSpan out, int root,
                            const CallOptions& options) const {
  return wait_for(gather_async(in, out, root, options));
}

Status Communicator::scatter(TensorView in, TensorSpan out, int root,
                             const CallOptions& options) const {
  return wait_for(scatter_async(in, out, root, options));
}

Result<Operation> Communicator::send_async(TensorView tensor, int target, int tag,
                                           const CallOptions& options) const {
  THALWEG_TRY_STATUS(net::check("send", tensor.data, tensor.elements));
  // The data is only read.
  auto* data = static_cast<std::byte*>(const_cast<void*>(tensor.data));  // NOLINT
  THALWEG_TRY(std::shared_ptr<net::MessageOperation> op,
              core_->message({.sends = true,
                              .data = data,
                              .elements = tensor.elements,
                              .type = tensor.type,
                              .peer = target,
                              .tag = tag},
                             options));
  return Operation(std::move(op));
}

Status Communicator::send(TensorView tensor, int target, int tag,
                          const CallOptions& options) const {
  return wait_for(send_async(tensor, target, tag, options));
}

Result<Operation> Communicator::recv_async(TensorSpan tensor, int source, int tag,
                                           const CallOptions& options) const {
  THALWEG_TRY_STATUS(net::check("recv", tensor.data, tensor.elements));
  THALWEG_TRY(std::shared_ptr<net::MessageOperation> op,
              core_->message({.sends = false,
                              .data = static_cast<std::byte*>(tensor.data),
                              .elements = tensor.elements,
                              .type = tensor.type,
                              .peer = source,
                              .tag = tag},
                             options));
  return Operation(std::move(op));
}

Result<int> Communicator::recv(TensorSpan tensor, int source, int tag,
                               const CallOptions& options) const {
  THALWEG_TRY(const Operation operation, recv_async(tensor, source, tag, options));
  THALWEG_TRY_STATUS(operation.wait());
  return operation.source();
}

Result<std::optional<Communicator>> Communicator::split(int color, int key,
                                                        const CallOptions& options) const {
  if (color < 0 && color != kNoColor) {
    return Error(fmt::format("color: {}; 0 or more, or kNoColor, is allowed", color));
  }
  const Time until = net::monotonic_now() + Duration::nanoseconds(options.deadline.count());
  const std::array<std::int64_t, 2> own{color, key};
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(size()));
  CallOptions exchange = options;
  exchange.scheme.clear();
  THALWEG_TRY_STATUS(all_gather(TensorView::of(std::span<const std::int64_t>(own)),
                                TensorSpan::of(all), exchange));
  THALWEG_TRY(std::unique_ptr<Core> core, core_->part(all, until));
  if (!core) return std::optional<Communicator>();
  return std::optional<Communicator>(Communicator(std::move(core)));
}

Result<std::optional<Communicator>> Communicator::grow(const CallOptions& options) const {
  THALWEG_TRY_STATUS(core_->at_home());
  const Time until = net::monotonic_now() + Duration::nanoseconds(options.deadline.count());
  std::vector<std::int64_t> count(1);
  if (rank() == 0) {
    // Without a store there are no newcomers. The other ranks must be told that all the same.
    const Result<std::int64_t> waiting = core_->newcomers(until);
    count[0] = waiting.ok() ? *waiting : 0;
  }
  THALWEG_TRY_STATUS(broadcast(TensorSpan::of(count), 0, options));
  if (count[0] == 0) return std::optional<Communicator>();
  THALWEG_TRY(std::unique_ptr<Core> core, core_->grow(count[0], until));
  return std::optional<Communicator>(Communicator(std::move(core)));
}

}  // namespace thalweg
