// The parts of a work that collectives are made of.
#include <algorithm>
#include <utility>
#include <vector>

#include "backend.h"
#include "parts.h"

namespace thalweg::python {
namespace {

// Tensors on a device above kWholeBytes are reduced in pieces of about the same size, at most
// kPieceBytes, so that copies and network overlap. The network is faster with large pieces
// (docs/measurements/2026-11-18-gpu.md). All ranks must have the same pieces, whether their calls
// wait or not, because each piece is an operation.
constexpr std::int64_t kWholeBytes = std::int64_t{8} << 20U;
constexpr std::int64_t kPieceBytes = std::int64_t{16} << 20U;
constexpr std::int64_t kAligned = 1024;  // pieces begin at multiples of so many elements

// The number of elements in every piece but the last.
std::int64_t elements_of_piece(const at::Tensor& tensor) {
  const std::int64_t whole = std::max<std::int64_t>(1, tensor.numel());
  const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
  if (tensor.device().is_cpu() || bytes <= kWholeBytes) return whole;
  const std::int64_t pieces = std::max<std::int64_t>(2, (bytes + kPieceBytes - 1) / kPieceBytes);
  const std::int64_t piece = (whole + pieces - 1) / pieces;
  return (piece + kAligned - 1) / kAligned * kAligned;
}

}  // namespace

void Backend::add_allreduce(const OwnWork& work, const Call& call, const at::Tensor& tensor,
                            const c10d::ReduceOp& op) {
  const Reduction reduction = reduction_of(op, tensor.scalar_type());
  if (reduction.way != Reduction::Way::kGather) {
    add_allreduce_pieces(work, call, tensor, reduction);
    return;
  }
  Part& part = work->add();
  at::Tensor host = part.stage.inout(tensor);
  const at::Tensor rows = part.stage.scratch({getSize(), host.numel()}, host);
  part.start = [all = living(), host, rows](const CallOptions& options, Operations& out) {
    append(all->all_gather_async(span_of(host), span_of(rows), options), out);
  };
  part.finish = [host, rows, reduction]() mutable { combine(rows, reduction, host); };
  launch(work, part, call);
}

void Backend::add_allreduce_pieces(const OwnWork& work, const Call& call, const at::Tensor& tensor,
                                   const Reduction& reduction) {
  const std::int64_t whole = tensor.numel();
  const std::int64_t piece = elements_of_piece(tensor);
  const bool flat = !tensor.device().is_cpu() && tensor.is_contiguous();
  const bool flips = reduction.way == Reduction::Way::kUnsigned;
  const auto add = [&](std::int64_t first, const at::Tensor& of) -> Part* {
    Part& part = work->add();
    at::Tensor host = part.stage.inout(of);
    at::Tensor rest;
    if (call.residual.defined()) {
      rest = part.stage.inout(call.residual.view({-1}).narrow(0, first, of.numel()));
    }
    part.start = [all = living(), host, rest, reduction, piece, flips](const CallOptions& options,
                                                                       Operations& out) mutable {
      if (flips) flip(host);
      const at::Tensor elements = host.view({-1});
      std::int64_t at = 0;
      do {
        const std::int64_t count = std::min(piece, elements.numel() - at);
        const at::Tensor some = elements.narrow(0, at, count);
        CallOptions own = by(reduction, options);
        if (rest.defined()) own.residual = rest.narrow(0, at, count).data_ptr();
        append(all->allreduce_async(span_of(some, reduction), own), out);
        at += count;
      } while (at < elements.numel());
    };
    if (work->awaited() && call.type == c10d::OpType::ALLREDUCE && of.numel() <= piece) {
      part.run = [all = living(), host, rest, reduction,
                  flips](const CallOptions& options) mutable -> Status {
        if (flips) flip(host);
        CallOptions own = by(reduction, options);
        if (rest.defined()) own.residual = rest.data_ptr();
        return all->allreduce(span_of(host, reduction), own);
      };
    }
    if (flips) part.finish = [host]() mutable { flip(host); };
    return &part;
  };
  if (!flat || whole <= piece) {
    launch(work, *add(0, tensor), call);
    return;
  }
  // All copies to the host are enqueued before the first part waits for its own.
  std::vector<Part*> parts;
  const at::Tensor elements = tensor.view({-1});
  for (std::int64_t at = 0; at < whole; at += piece) {
    parts.push_back(add(at, elements.narrow(0, at, std::min(piece, whole - at))));
  }
  launch(work, parts, call);
}

void Backend::add_broadcast(const OwnWork& work, const Call& call, const at::Tensor& tensor,
                            int root) {
  Part& part = work->add();
  const at::Tensor host = getRank() == root ? part.stage.in(tensor) : part.stage.out(tensor);
  part.start = [all = living(), host, root](const CallOptions& options, Operations& out) {
    append(all->broadcast_async(span_of(host), root, options), out);
  };
  launch(work, part, call);
}

void Backend::add_reduce(const OwnWork& work, const Call& call, const at::Tensor& tensor, int root,
                         const c10d::ReduceOp& op, const at::Tensor& into) {
  const Reduction reduction = reduction_of(op, tensor.scalar_type());
  const bool at_root = getRank() == root;
  Part& part = work->add();
  const at::Tensor host = part.stage.in(tensor);
  at::Tensor result = at_root ? part.stage.out(into) : host;
  if (reduction.way == Reduction::Way::kGather) {
    const at::Tensor rows = part.stage.scratch({at_root ? getSize() : 0, host.numel()}, host);
    part.start = [all = living(), host, rows, root](const CallOptions& options, Operations& out) {
      append(all->gather_async(span_of(host), span_of(rows), root, options), out);
    };
    if (at_root) part.finish = [=]() mutable { combine(rows, reduction, result); };
    launch(work, part, call);
    return;
  }
  const bool flips = reduction.way == Reduction::Way::kUnsigned;
  at::Tensor sum = part.stage.scratch(host.sizes().vec(), host);
  part.start = [=, all = living()](const CallOptions& options, Operations& out) mutable {
    sum.copy_(host);
    if (flips) flip(sum);
    append(all->reduce_async(span_of(sum, reduction), root, by(reduction, options)), out);
  };
  if (at_root) {
    part.finish = [=]() mutable {
      if (flips) flip(sum);
      result.view({-1}).copy_(sum.view({-1}));
    };
  }
  launch(work, part, call);
}

void Backend::add_allgather(const OwnWork& work, const Call& call, const at::Tensor& output,
                            const at::Tensor& input) {
  check_same({output}, input, call.name);
  Part& part = work->add();
  const at::Tensor in = part.stage.in(input);
  const at::Tensor out = part.stage.out(output);
  part.start = [all = living(), in, out](const CallOptions& options, Operations& operations) {
    append(all->all_gather_async(span_of(in), span_of(out), options), operations);
  };
  launch(work, part, call);
}

void Backend::add_allgather_list(const OwnWork& work, const Call& call, const Tensors& outputs,
                                 const at::Tensor& input) {
  TORCH_CHECK(outputs.size() == static_cast<std::size_t>(getSize()), "thalweg: ", call.name, ": ",
              outputs.size(), " outputs; one for each of ", getSize(), " ranks is needed");
  check_same(outputs, input, call.name);
  const at::Tensor& own = outputs[static_cast<std::size_t>(getRank())];
  TORCH_CHECK(own.numel() == input.numel(), "thalweg: ", call.name, ": output ", getRank(), " has ",
              own.numel(), " elements; this rank's input has ", input.numel());
  if (!same_sizes(outputs)) {
    const at::NoGradGuard no_grad;
    own.view({-1}).copy_(input.reshape({-1}));
    for (int r = 0; r < getSize(); ++r) {
      add_broadcast(work, call, outputs[static_cast<std::size_t>(r)], r);
    }
    return;
  }
  Part& part = work->add();
  const at::Tensor in = part.stage.in(input);
  const at::Tensor rows = part.stage.scratch({getSize(), in.numel()}, in);
  Tensors hosts;
  for (const at::Tensor& output : outputs) hosts.push_back(part.stage.out(output));
  part.start = [all = living(), in, rows](const CallOptions& options, Operations& out) {
    append(all->all_gather_async(span_of(in), span_of(rows), options), out);
  };
  part.finish = [rows, hosts] { spread_rows(rows, hosts); };
  launch(work, part, call);
}

void Backend::add_reduce_scatter(const OwnWork& work, const Call& call, const at::Tensor& output,
                                 const Tensors& inputs, const c10d::ReduceOp& op) {
  check_same(inputs, output, call.name);
  const Reduction reduction = reduction_of(op, output.scalar_type());
  const bool list = inputs.size() > 1 || getSize() == 1;
  if (list && !same_sizes(inputs)) {
    for (int r = 0; r < getSize(); ++r) {
      add_reduce(work, call, inputs[static_cast<std::size_t>(r)], r, op, output);
    }
    return;
  }
  Part& part = work->add();
  at::Tensor result = part.stage.out(output);
  Tensors hosts;
  for (const at::Tensor& input : inputs) hosts.push_back(part.stage.in(input));
  TORCH_CHECK(inputs[0].numel() * (list ? getSize() : 1) == output.numel() * getSize(),
              "thalweg: ", call.name, ": an input of ", inputs[0].numel(),
              " elements, an output of ", output.numel(), ", ", getSize(),
              " ranks: the sizes do not fit");
  const bool flips = reduction.way == Reduction::Way::kUnsigned;
  const bool gathers = reduction.way == Reduction::Way::kGather;
  at::Tensor whole = hosts[0];
  if (list || flips) whole = part.stage.scratch({getSize(), result.numel()}, result);
  const at::Tensor rows =
      gathers ? part.stage.scratch({getSize(), result.numel()}, result) : at::Tensor();
  part.start = [=, all = living()](const CallOptions& options, Operations& out) mutable {
    if (list) {
      fill_rows(whole, hosts);
    } else if (flips) {
      whole.view({-1}).copy_(hosts[0].view({-1}));
    }
    if (flips) flip(whole);
    if (gathers) {
      append(all->all_to_all_async(span_of(whole), span_of(rows), options), out);
    } else {
      append(all->reduce_scatter_async(span_of(whole, reduction), span_of(result, reduction),
                                       by(reduction, options)),
             out);
    }
  };
  part.finish = [=]() mutable {
    if (gathers) combine(rows, reduction, result);
    if (flips) flip(result);
  };
  launch(work, part, call);
}

}  // namespace thalweg::python
