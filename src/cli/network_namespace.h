// Network namespaces of threads: which one a thread is in, and a visit to another.
#pragma once

#include <utility>

#include <thalweg/result.h>

#include "net/fd.h"

namespace thalweg {

// The one that the calling thread is in.
[[nodiscard]] Result<Fd> current_namespace();

// Holds the calling thread in a namespace as long as it lives.
class NamespaceVisit {
 public:
  [[nodiscard]] static Result<NamespaceVisit> begin(int to);
  ~NamespaceVisit();
  NamespaceVisit(NamespaceVisit&&) = default;
  NamespaceVisit& operator=(NamespaceVisit&&) = delete;

 private:
  explicit NamespaceVisit(Fd before) : before_(std::move(before)) {}
  Fd before_;
};

}  // namespace thalweg
