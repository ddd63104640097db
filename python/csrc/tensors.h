// PyTorch's tensors and reductions in the communicator's words.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <string>
#include <vector>

#include <thalweg/tensor.h>

namespace thalweg::python {

// The memory of a contiguous CPU tensor, to be moved: elements of its type, or bytes where the
// communicator has no such type.
TensorSpan span_of(const at::Tensor& host);

// How a reduction of elements of a type is done.
struct Reduction {
  enum class Way {
    kReduce,    // by the communicator
    kUnsigned,  // so too, with the top bit flipped before and after: unsigned order as signed
    kGather,    // contributions are gathered, and combined by PyTorch: bitwise operations
  };
  Way way = Way::kReduce;
  ReduceOp op = ReduceOp::kSum;
  DType type = DType::kFloat32;
  std::int64_t words = 1;  // of `type` in an element
  c10d::ReduceOp::RedOpType bitwise = c10d::ReduceOp::BAND;
};
// Throws where there is none, and says which there are.
Reduction reduction_of(const c10d::ReduceOp& op, c10::ScalarType type);

// The memory of a contiguous CPU tensor, to be reduced.
TensorSpan span_of(const at::Tensor& host, const Reduction& reduction);

// Flips the top bit of every byte.
void flip(at::Tensor& host);
// Combines the rows of `contributions` into `out`.
void combine(const at::Tensor& contributions, const Reduction& reduction, at::Tensor& out);

// All of one type and size: those are what `what` needs.
void check_same(const std::vector<at::Tensor>& tensors, const at::Tensor& like, const char* what);
bool same_sizes(const std::vector<at::Tensor>& tensors);

}  // namespace thalweg::python
