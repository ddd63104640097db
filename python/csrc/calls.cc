// The calls of c10d::Backend.
#include <utility>

#include "backend.h"
#include "parts.h"

namespace thalweg::python {

WorkPtr Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  const at::Tensor& tensor = only(tensors, "allreduce");
  const Call call{c10d::OpType::ALLREDUCE, "all_reduce", opts.timeout, is_async(opts), tensors};
  const OwnWork work = begin(call);
  if (tensor.layout() == c10::kSparse) {
    reduce_sparse(tensor, call, opts.reduceOp);
  } else {
    add_allreduce(work, call, tensor, opts.reduceOp);
  }
  return finish(work, call);
}

WorkPtr Backend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  return allreduce(tensors, opts);
}

WorkPtr Backend::allreduce_coalesced(Tensors& tensors,
                                     const c10d::AllreduceCoalescedOptions& opts) {
  const Call call{c10d::OpType::ALLREDUCE_COALESCED, "all_reduce", opts.timeout, is_async(opts),
                  tensors};
  const OwnWork work = begin(call);
  for (const at::Tensor& tensor : tensors) add_allreduce(work, call, tensor, opts.reduceOp);
  return finish(work, call);
}

WorkPtr Backend::reduce_gradient(at::Tensor tensor, bool mean, const GradientOptions& gradient) {
  Call call{c10d::OpType::ALLREDUCE, "all_reduce", c10d::kUnsetTimeout, true, {tensor}};
  call.options.priority = gradient.priority;
  TORCH_CHECK_VALUE(gradient.queue >= 1 && gradient.queue <= 7, "thalweg: queue: ", gradient.queue,
                    "; from 1 to 7 are allowed");
  call.options.dlcp_queue = static_cast<std::uint8_t>(gradient.queue);
  call.options.loss_bound = gradient.loss_bound;
  if (gradient.result_loss_bound >= 0) {
    call.options.result_loss_bound = gradient.result_loss_bound;
  }
  // The transport auto finds out itself whether a loss bound is worth DLCP.
  const bool chosen = communicator_options_.transport == Transport::kAuto;
  if (gradient.dlcp || (gradient.loss_bound != 0 && !chosen)) {
    call.options.transport = Transport::kDlcp;
  }
  call.options.straggler_bound = gradient.straggler_bound;
  call.options.straggler_window = gradient.straggler_window;
  call.residual = gradient.residual;
  TORCH_CHECK_VALUE(
      !call.residual.defined() ||
          (call.residual.numel() == tensor.numel() && call.residual.is_contiguous() &&
           call.residual.scalar_type() == tensor.scalar_type() &&
           call.residual.device() == tensor.device()),
      "thalweg: residual: it must be contiguous, with the size, type and device of the gradient");
  const OwnWork work = begin(call);
  add_allreduce(work, call, tensor, mean ? c10d::ReduceOp::AVG : c10d::ReduceOp::SUM);
  return finish(work, call);
}

WorkPtr Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  check_root("broadcast", opts.rootRank);
  const Call call{c10d::OpType::BROADCAST, "broadcast", opts.timeout, is_async(opts), tensors};
  const OwnWork work = begin(call);
  add_broadcast(work, call, only(tensors, "broadcast"), static_cast<int>(opts.rootRank));
  return finish(work, call);
}

WorkPtr Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  check_root("reduce", opts.rootRank);
  const at::Tensor& tensor = only(tensors, "reduce");
  const Call call{c10d::OpType::REDUCE, "reduce", opts.timeout, is_async(opts), tensors};
  const OwnWork work = begin(call);
  add_reduce(work, call, tensor, static_cast<int>(opts.rootRank), opts.reduceOp, tensor);
  return finish(work, call);
}

WorkPtr Backend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                           const c10d::AllgatherOptions& opts) {
  only(inputs, "all_gather");
  return allgather_coalesced(outputs, inputs, opts);
}

WorkPtr Backend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                     const c10d::AllgatherOptions& opts) {
  Call call{c10d::OpType::ALLGATHER, "all_gather", opts.timeout, is_async(opts)};
  TORCH_CHECK(!inputs.empty() && !outputs.empty(), "thalweg: all_gather: no tensors");
  // In coalesced calls, PyTorch passes one list per rank, with one tensor per input.
  std::vector<Tensors> lists = outputs;
  if (inputs.size() > 1 || outputs.size() > 1) {
    lists.assign(inputs.size(), Tensors());
    for (const Tensors& of_rank : outputs) {
      TORCH_CHECK(of_rank.size() == inputs.size(), "thalweg: all_gather: ", of_rank.size(),
                  " outputs of a rank; ", inputs.size(), " inputs need as many");
      for (std::size_t i = 0; i < inputs.size(); ++i) lists[i].push_back(of_rank[i]);
    }
  }
  for (const Tensors& list : lists) {
    call.outputs.insert(call.outputs.end(), list.begin(), list.end());
  }
  const OwnWork work = begin(call);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    add_allgather_list(work, call, lists[i], inputs[i]);
  }
  return finish(work, call);
}

WorkPtr Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                 const c10d::AllgatherOptions& opts) {
  Tensors outputs = {output};
  Tensors inputs = {input};
  return allgather_into_tensor_coalesced(outputs, inputs, opts);
}

WorkPtr Backend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                 const c10d::AllgatherOptions& opts) {
  TORCH_CHECK(outputs.size() == inputs.size(), "thalweg: all_gather_into_tensor: ", outputs.size(),
              " outputs and ", inputs.size(), " inputs");
  const Call call{c10d::OpType::_ALLGATHER_BASE, "all_gather", opts.timeout, is_async(opts),
                  outputs};
  const OwnWork work = begin(call);
  for (std::size_t i = 0; i < inputs.size(); ++i) add_allgather(work, call, outputs[i], inputs[i]);
  return finish(work, call);
}

WorkPtr Backend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                        const c10d::GatherOptions& opts) {
  check_root("gather", opts.rootRank);
  const auto root = static_cast<int>(opts.rootRank);
  const bool at_root = getRank() == root;
  TORCH_CHECK(at_root ? outputs.size() == 1 && outputs[0].size() == static_cast<std::size_t>(size_)
                      : outputs.empty(),
              "thalweg: gather: the root needs an output for each rank, the others none");
  const at::Tensor& input = only(inputs, "gather");
  const Call call{c10d::OpType::GATHER, "gather", opts.timeout, is_async(opts),
                  at_root ? outputs[0] : Tensors()};
  check_same(call.outputs, input, "gather");
  for (const at::Tensor& output : call.outputs) {
    TORCH_CHECK(output.numel() == input.numel(), "thalweg: gather: an output of ", output.numel(),
                " elements; each rank has ", input.numel());
  }
  const OwnWork work = begin(call);
  Part& part = work->add();
  const at::Tensor in = part.stage.in(input);
  const at::Tensor rows = part.stage.scratch({at_root ? getSize() : 0, in.numel()}, in);
  Tensors hosts;
  for (const at::Tensor& output : call.outputs) hosts.push_back(part.stage.out(output));
  part.start = [all = living(), in, rows, root](const CallOptions& options, Operations& out) {
    append(all->gather_async(span_of(in), span_of(rows), root, options), out);
  };
  part.finish = [rows, hosts] { spread_rows(rows, hosts); };
  launch(work, part, call);
  return finish(work, call);
}

WorkPtr Backend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ScatterOptions& opts) {
  check_root("scatter", opts.rootRank);
  const auto root = static_cast<int>(opts.rootRank);
  const bool at_root = getRank() == root;
  TORCH_CHECK(at_root ? inputs.size() == 1 && inputs[0].size() == static_cast<std::size_t>(size_)
                      : inputs.empty(),
              "thalweg: scatter: the root needs an input for each rank, the others none");
  const at::Tensor& output = only(outputs, "scatter");
  const Call call{c10d::OpType::SCATTER, "scatter", opts.timeout, is_async(opts), outputs};
  const OwnWork work = begin(call);
  Part& part = work->add();
  const at::Tensor result = part.stage.out(output);
  const at::Tensor rows = part.stage.scratch({at_root ? getSize() : 0, result.numel()}, result);
  Tensors hosts;
  if (at_root) {
    check_same(inputs[0], output, "scatter");
    for (const at::Tensor& input : inputs[0]) {
      TORCH_CHECK(input.numel() == output.numel(), "thalweg: scatter: an input of ", input.numel(),
                  " elements; each rank has room for ", output.numel());
      hosts.push_back(part.stage.in(input));
    }
  }
  part.start = [all = living(), result, rows, hosts, root](const CallOptions& options,
                                                           Operations& out) {
    fill_rows(rows, hosts);
    append(all->scatter_async(span_of(rows), span_of(result), root, options), out);
  };
  launch(work, part, call);
  return finish(work, call);
}

WorkPtr Backend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                const c10d::ReduceScatterOptions& opts) {
  const at::Tensor& output = only(outputs, "reduce_scatter");
  TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == static_cast<std::size_t>(size_),
              "thalweg: reduce_scatter: an input for each of ", size_, " ranks is needed");
  const Call call{c10d::OpType::REDUCE_SCATTER, "reduce_scatter", opts.timeout, is_async(opts),
                  outputs};
  const OwnWork work = begin(call);
  add_reduce_scatter(work, call, output, inputs[0], opts.reduceOp);
  return finish(work, call);
}

WorkPtr Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                      const c10d::ReduceScatterOptions& opts) {
  Tensors outputs = {output};
  Tensors inputs = {input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, opts);
}

WorkPtr Backend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                 const c10d::ReduceScatterOptions& opts) {
  TORCH_CHECK(outputs.size() == inputs.size(), "thalweg: reduce_scatter_tensor: ", outputs.size(),
              " outputs and ", inputs.size(), " inputs");
  const Call call{c10d::OpType::_REDUCE_SCATTER_BASE, "reduce_scatter", opts.timeout,
                  is_async(opts), outputs};
  const OwnWork work = begin(call);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    add_reduce_scatter(work, call, outputs[i], {inputs[i]}, opts.reduceOp);
  }
  return finish(work, call);
}

WorkPtr Backend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& to,
                               std::vector<std::int64_t>& from, const c10d::AllToAllOptions& opts) {
  check_same({output}, input, "all_to_all");
  const Call call{
      c10d::OpType::ALLTOALL_BASE, "all_to_all", opts.timeout, is_async(opts), {output}};
  const auto rows_of = [&](const at::Tensor& tensor, bool even, const char* which) {
    const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
    TORCH_CHECK(!even || rows % size_ == 0, "thalweg: all_to_all: the ", which, " has ", rows,
                " rows, which ", size_, " ranks cannot share equally");
    return rows;
  };
  if (to.empty() && from.empty()) {
    rows_of(input, true, "input");
    rows_of(output, true, "output");
    const OwnWork work = begin(call);
    Part& part = work->add();
    const at::Tensor in = part.stage.in(input);
    const at::Tensor out = part.stage.out(output);
    part.start = [all = living(), in, out](const CallOptions& options, Operations& operations) {
      append(all->all_to_all_async(span_of(in), span_of(out), options), operations);
    };
    launch(work, part, call);
    return finish(work, call);
  }
  const auto split = [&](const at::Tensor& host, std::vector<std::int64_t> sizes,
                         const char* which) {
    const std::int64_t rows = rows_of(host, sizes.empty(), which);
    if (sizes.empty()) sizes.assign(static_cast<std::size_t>(size_), rows / size_);
    std::int64_t sum = 0;
    for (const std::int64_t size : sizes) sum += size;
    TORCH_CHECK(sizes.size() == static_cast<std::size_t>(size_) && sum == rows,
                "thalweg: all_to_all: ", which, " split sizes are ", sizes.size(), " of sum ", sum,
                "; needed are ", size_, " of sum ", rows);
    return host.split_with_sizes(sizes);
  };
  return exchange(call, [&](Stage& stage) {
    return Exchange(split(stage.out(output), to, "output"), split(stage.in(input), from, "input"));
  });
}

WorkPtr Backend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  const auto ranks = static_cast<std::size_t>(size_);
  TORCH_CHECK(outputs.size() == ranks && inputs.size() == ranks,
              "thalweg: all_to_all: ", outputs.size(), " outputs and ", inputs.size(), " inputs; ",
              ranks, " ranks need one each");
  check_same(inputs, inputs[0], "all_to_all");
  check_same(outputs, inputs[0], "all_to_all");
  const Call call{c10d::OpType::ALLTOALL, "all_to_all", opts.timeout, is_async(opts), outputs};
  return exchange(call, [&](Stage& stage) {
    Exchange tensors;
    for (const at::Tensor& output : outputs) tensors.first.push_back(stage.out(output));
    for (const at::Tensor& input : inputs) tensors.second.push_back(stage.in(input));
    return tensors;
  });
}

WorkPtr Backend::barrier(const c10d::BarrierOptions& opts) {
  const Call call{c10d::OpType::BARRIER, "barrier", opts.timeout, is_async(opts)};
  const OwnWork work = begin(call);
  Part& part = work->add();
  part.start = [all = living()](const CallOptions& options, Operations& out) {
    append(all->barrier_async(options), out);
  };
  launch(work, part, call);
  return finish(work, call);
}

}  // namespace thalweg::python
