// Helpers for making the parts of a work.
#pragma once

#include <utility>

#include "backend.h"

namespace thalweg::python {

inline CallOptions by(const Reduction& reduction, CallOptions options) {
  options.op = reduction.op;
  return options;
}

inline void append(Result<Operation> operation, Operations& out) {
  if (!operation.ok()) raise(operation.error());
  out.push_back(*std::move(operation));
}

inline const at::Tensor& only(const Tensors& tensors, const char* name) {
  TORCH_CHECK(tensors.size() == 1, "thalweg: ", name, ": ", tensors.size(),
              " tensors; one is allowed");
  return tensors[0];
}

// Copies a list of host tensors to the rows of one host tensor; spread_rows() copies them back.
inline void fill_rows(const at::Tensor& rows, const Tensors& hosts) {
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    rows[static_cast<std::int64_t>(r)].copy_(hosts[r].view({-1}));
  }
}

inline void spread_rows(const at::Tensor& rows, const Tensors& hosts) {
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    hosts[r].view({-1}).copy_(rows[static_cast<std::int64_t>(r)]);
  }
}

}  // namespace thalweg::python
