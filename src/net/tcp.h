// TCP connections as the handshake, the store and the communicator make them: non-blocking sockets,
// waits that end at a time.
#pragma once

#include <string>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/address.h"
#include "net/fd.h"

namespace thalweg {

// True when the socket is ready for `events` of poll by then, or broken.
[[nodiscard]] bool wait_for_socket(int fd, short events, Time until);

// Tries until then: the other end may not have started yet. `name` is how errors call it. `local`:
// the address to connect from; null: the system's choice.
[[nodiscard]] Result<Fd> connect_tcp(const SocketAddress& remote, const std::string& name,
                                     Time until, const SocketAddress* local = nullptr);

// Two ends with one address are on one host, and in one network: processes that somebody keeps in
// networks of their own are to use them.
[[nodiscard]] bool is_within_host(int fd);

// A segment that is lost behind all others is repeated after 8 ms or some more, instead of the 200
// that are made for the Internet. Older systems than Linux 6.15 refuse that, and keep their 200.
void repeat_soon(int fd);

// What a connected stream between ranks needs: no delay, repetition soon, and an end if the other
// machine is gone.
void prepare_stream(int fd);

// Listens at "host:port", or at all addresses of this host if the host is "*". Port 0: any.
[[nodiscard]] Result<Fd> listen_tcp(const std::string& address);

}  // namespace thalweg
