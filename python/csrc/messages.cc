// Calls that are made of messages between two ranks, or of several rounds.
#include <algorithm>
#include <chrono>
#include <utility>

#include "backend.h"
#include "parts.h"

namespace thalweg::python {
namespace {

// Tags from here on are reserved for the backend.
constexpr int kFirstOwnTag = 1 << 30;
constexpr int kExchangeTag = kFirstOwnTag;
constexpr int kBarrierTag = kFirstOwnTag + 1;

// The time that is left for a call that is made of several others.
class Deadline {
 public:
  explicit Deadline(std::chrono::nanoseconds limit)
      : end_(std::chrono::steady_clock::now() + limit) {}
  [[nodiscard]] std::chrono::milliseconds left() const {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end_ - std::chrono::steady_clock::now());
    return std::max(left, std::chrono::milliseconds(1));
  }

 private:
  std::chrono::steady_clock::time_point end_;
};

}  // namespace

WorkPtr Backend::exchange(const Call& call, const std::function<Exchange(Stage&)>& lay_out) {
  const OwnWork work = begin(call);
  Part& part = work->add();
  auto [from, to] = lay_out(part.stage);
  const auto own = static_cast<std::size_t>(getRank());
  TORCH_CHECK(from[own].numel() == to[own].numel(), "thalweg: all_to_all: rank ", own, " sends ",
              to[own].numel(), " elements to itself and expects ", from[own].numel());
  part.start = [all = living(), from = std::move(from), to = std::move(to), own](
                   const CallOptions& options, Operations& out) {
    const std::size_t ranks = from.size();
    for (std::size_t step = 1; step < ranks; ++step) {
      const std::size_t source = (own + ranks - step) % ranks;
      append(
          all->recv_async(span_of(from[source]), static_cast<int>(source), kExchangeTag, options),
          out);
    }
    for (std::size_t step = 1; step < ranks; ++step) {
      const std::size_t target = (own + step) % ranks;
      append(all->send_async(span_of(to[target]), static_cast<int>(target), kExchangeTag, options),
             out);
    }
    from[own].view({-1}).copy_(to[own].view({-1}));
  };
  launch(work, part, call);
  return finish(work, call);
}

WorkPtr Backend::message(Tensors& tensors, bool sends, int peer, int tag) {
  const Call call{
      sends ? c10d::OpType::SEND : (peer < 0 ? c10d::OpType::RECVANYSOURCE : c10d::OpType::RECV),
      sends ? "send" : "recv", c10d::kUnsetTimeout, true, sends ? Tensors() : tensors};
  const at::Tensor& tensor = only(tensors, call.name);
  TORCH_CHECK(tag >= 0 && tag < kFirstOwnTag, "thalweg: ", call.name, ": tag ", tag, "; from 0 to ",
              kFirstOwnTag - 1, " are allowed");
  const OwnWork work = begin(call);
  Part& part = work->add();
  const at::Tensor host = sends ? part.stage.in(tensor) : part.stage.out(tensor);
  part.start = [all = living(), host, sends, peer, tag](const CallOptions& options,
                                                        Operations& out) {
    append(sends ? all->send_async(span_of(host), peer, tag, options)
                 : all->recv_async(span_of(host), peer, tag, options),
           out);
  };
  launch_message(work, part, call);
  return finish(work, call);
}

WorkPtr Backend::send(Tensors& tensors, int target, int tag) {
  return message(tensors, true, target, tag);
}

WorkPtr Backend::recv(Tensors& tensors, int source, int tag) {
  return message(tensors, false, source, tag);
}

WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) {
  return message(tensors, false, Communicator::kAnySource, tag);
}

// Rank 0 receives from every rank, and then sends to all of them, so it knows which ranks are
// missing. The errors use Gloo's words, which scripts look for.
void Backend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  ++sequence_;
  const std::shared_ptr<Communicator> all = living();
  const Call call{c10d::OpType::BARRIER, "monitored_barrier", opts.timeout};
  CallOptions options = options_for(call);
  const Deadline deadline(options.deadline);
  const auto left = [&] {
    options.deadline = deadline.left();
    return options;
  };
  std::vector<std::int8_t> word = {1};
  const std::string self = "Rank " + std::to_string(getRank());
  if (opts.timeout == std::chrono::milliseconds(0)) {
    raise({ErrorCode::kTimeout, self + " timed out in monitoredBarrier after 0 ms"});
  }
  if (getRank() != 0) {
    const Status sent = all->send(TensorView::of(word), 0, kBarrierTag, left());
    if (!sent.ok()) {
      raise(sent.error().within(self + " failed to pass monitoredBarrier"));
    }
    const Result<int> heard = all->recv(TensorSpan::of(word), 0, kBarrierTag, left());
    if (heard.ok()) return;
    raise(heard.error().within(
        self +
        " successfully reached monitoredBarrier, but received errors while waiting for "
        "send/recv from rank 0. Please check rank 0 logs for faulty rank.\n" +
        self + " timed out in monitoredBarrier"));
  }
  std::string missing;
  std::optional<Error> why;  // why the last of them is missing
  for (int r = 1; r < getSize(); ++r) {
    const Result<int> heard = all->recv(TensorSpan::of(word), r, kBarrierTag, left());
    if (heard.ok()) continue;
    missing += (missing.empty() ? "" : ", ") + std::to_string(r);
    why = heard.error();
    if (!wait_all_ranks) break;
  }
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(options_for(call).deadline);
  if (why) {
    raise(why->within((wait_all_ranks ? "Ranks " : "Rank ") + missing +
                      " failed to pass monitoredBarrier in " + std::to_string(ms.count()) + " ms"));
  }
  for (int r = 1; r < getSize(); ++r) {
    const Status told = all->send(TensorView::of(word), r, kBarrierTag, left());
    if (!told.ok()) {
      raise(told.error().within("Rank " + std::to_string(r) + " failed to pass monitoredBarrier"));
    }
  }
}

void Backend::run(const Call& call, const std::function<void(const OwnWork&)>& lay_out) {
  const OwnWork work = c10::make_intrusive<Work>(getRank(), call.type, sequence_.load(), call.name,
                                                 Tensors(), completer_);
  lay_out(work);
  work->seal();
  work->wait(kNoTimeout);
}

std::vector<Tensors> Backend::gather_uneven(const Tensors& tensors, const Call& call) {
  const Deadline deadline(options_for(call).deadline);
  const Call counting{c10d::OpType::_ALLGATHER_BASE, "all_gather", deadline.left()};
  const at::Tensor counts = at::empty({size_}, at::kLong);
  run(counting, [&](const OwnWork& work) {
    add_allgather(work, counting, counts, at::full({1}, tensors[0].size(0), at::kLong));
  });
  std::vector<Tensors> gathered;
  const Call moving{c10d::OpType::BROADCAST, "broadcast", deadline.left()};
  run(moving, [&](const OwnWork& work) {
    for (const at::Tensor& tensor : tensors) {
      Tensors& of_ranks = gathered.emplace_back();
      for (int r = 0; r < size_; ++r) {
        std::vector<std::int64_t> sizes = tensor.sizes().vec();
        sizes[0] = counts[r].item<std::int64_t>();
        of_ranks.push_back(r == getRank() ? tensor : at::empty(sizes, tensor.options()));
        add_broadcast(work, moving, of_ranks.back(), r);
      }
    }
  });
  return gathered;
}

// Sums sparse tensors whose indices may differ: each rank gathers all contributions, and adds them
// in the order of the ranks.
void Backend::reduce_sparse(const at::Tensor& tensor, const Call& call, const c10d::ReduceOp& op) {
  TORCH_CHECK(op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG,
              "thalweg: a reduction of sparse tensors; SUM and AVG are allowed");
  TORCH_CHECK(tensor.device().is_cpu(), "thalweg: a sparse tensor on ", tensor.device(),
              "; call to_dense() first");
  const at::NoGradGuard no_grad;
  const at::Tensor own = tensor.coalesce();
  const std::vector<Tensors> of_ranks =
      gather_uneven({own.indices().t().contiguous(), own.values().contiguous()}, call);
  at::Tensor sum = at::sparse_coo_tensor(at::cat(of_ranks[0]).t(), at::cat(of_ranks[1]),
                                         tensor.sizes(), tensor.options());
  sum = sum.coalesce();
  if (op == c10d::ReduceOp::AVG) sum.div_(size_);
  tensor.copy_(sum);
}

}  // namespace thalweg::python
