#include "net/io/tcp_listener.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace thalweg::net {
namespace {

// Raises the limit of open files towards `wanted`, at most to the hard limit. Returns false if it
// cannot be raised.
bool raise_open_files(rlim_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  const rlim_t most = std::min(limit.rlim_max, wanted);
  if (limit.rlim_cur >= most) return false;
  limit.rlim_cur = most;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

int spare_descriptor(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, 0); }

Fd accept_one(int fd) { return Fd(accept4(fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)); }

}  // namespace

TcpListener::TcpListener(Fd fd, std::size_t most_clients)
    : fd_(std::move(fd)), spare_(spare_descriptor(fd_.get())), most_clients_(most_clients) {}

void TcpListener::accept_all(const std::function<void(Fd)>& take,
                             const std::function<void(int)>& refuse) {
  while (true) {
    Fd client = accept_one(fd_.get());
    if (client.valid()) {
      take(std::move(client));
    } else if (errno == EMFILE || errno == ENFILE) {
      if (!raise_open_files(2 * most_clients_) && !refuse_one(refuse)) return;
    } else if (errno != ECONNABORTED && errno != EINTR) {
      return;
    }
  }
}

bool TcpListener::refuse_one(const std::function<void(int)>& refuse) {
  spare_.reset();
  Fd client = accept_one(fd_.get());
  const bool refused = client.valid();
  if (refused) refuse(client.get());
  client.reset();
  spare_ = Fd(spare_descriptor(fd_.get()));
  return refused;
}

}  // namespace thalweg::net
