// The network namespace that a thread is in, and visits to other ones.
#pragma once

#include <utility>

#include <thalweg/result.h>

#include "net/io/fd.h"

namespace thalweg::lab {

// The network namespace that the calling thread is in.
[[nodiscard]] Result<net::Fd> current_namespace();

// Moves the calling thread into a namespace, and back when the visit is destroyed.
class NamespaceVisit {
 public:
  // `to`: a descriptor of the namespace.
  [[nodiscard]] static Result<NamespaceVisit> begin(int to);
  ~NamespaceVisit();
  NamespaceVisit(NamespaceVisit&&) = default;
  NamespaceVisit& operator=(NamespaceVisit&&) = delete;

 private:
  explicit NamespaceVisit(net::Fd before) : before_(std::move(before)) {}
  net::Fd before_;
};

}  // namespace thalweg::lab
