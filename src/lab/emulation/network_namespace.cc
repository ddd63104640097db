#include "lab/emulation/network_namespace.h"

#include <fcntl.h>
#include <sched.h>

#include <cerrno>

#include "base/check.h"
#include "net/io/system.h"

namespace thalweg::lab {

Result<net::Fd> current_namespace() {
  net::Fd fd(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return net::system_error("cannot open the network namespace", errno);
  return fd;
}

Result<NamespaceVisit> NamespaceVisit::begin(int to) {
  THALWEG_TRY(net::Fd before, current_namespace());
  if (setns(to, CLONE_NEWNET) != 0) {
    return net::system_error("cannot enter a network namespace", errno);
  }
  return NamespaceVisit(std::move(before));
}

NamespaceVisit::~NamespaceVisit() {
  if (before_.valid()) CHECK(setns(before_.get(), CLONE_NEWNET) == 0);
}

}  // namespace thalweg::lab
