// Translates PyTorch's tensors and reductions for the communicator.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <string>
#include <vector>

#include <thalweg/tensor.h>

namespace thalweg::python {

// The memory of a contiguous CPU tensor, for moving it: elements of its type, or bytes if the
// communicator has no such type.
TensorSpan span_of(const at::Tensor& host);

// How a reduction of elements of one type is done.
struct Reduction {
  enum class Way {
    kReduce,    // by the communicator
    kUnsigned,  // the same, with top bits flipped before and after: orders unsigned as signed
    kGather,    // ranks gather the contributions, and PyTorch combines them: bitwise operations
  };
  Way way = Way::kReduce;
  ReduceOp op = ReduceOp::kSum;
  DType type = DType::kFloat32;
  std::int64_t words = 1;  // words of `type` in an element
  c10d::ReduceOp::RedOpType bitwise = c10d::ReduceOp::BAND;
};
// Throws if there is no such reduction, with a message that lists those that there are.
Reduction reduction_of(const c10d::ReduceOp& op, c10::ScalarType type);

// The memory of a contiguous CPU tensor, for reducing it.
TensorSpan span_of(const at::Tensor& host, const Reduction& reduction);

// Flips the top bit of every byte.
void flip(at::Tensor& host);
// Combines the rows of `contributions` into `out`.
void combine(const at::Tensor& contributions, const Reduction& reduction, at::Tensor& out);

// Throws unless all tensors have the type of `like`. `what`: name of the call.
void check_same(const std::vector<at::Tensor>& tensors, const at::Tensor& like, const char* what);
bool same_sizes(const std::vector<at::Tensor>& tensors);

}  // namespace thalweg::python
