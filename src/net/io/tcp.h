// How the handshake, the store and the communicator make TCP connections: sockets do not block, and
// every wait has a time at which it ends.
#pragma once

#include <cstdint>
#include <string>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/io/address.h"
#include "net/io/fd.h"

namespace thalweg::net {

// Waits until the socket is ready for `events` (poll's bits) or broken: true. Returns false if
// neither happens by `until`.
[[nodiscard]] bool wait_for_socket(int fd, short events, Time until);

// Connects, trying again until `until`, since the other end may not have started yet. `name`: what
// error messages call the other end. `local`: the address to connect from; if null, the system
// chooses. `listens`: the other end has started, so that its refusal is an error at once.
[[nodiscard]] Result<Fd> connect_tcp(const SocketAddress& remote, const std::string& name,
                                     Time until, const SocketAddress* local = nullptr,
                                     bool listens = false);

// Whether both ends of this stream have the same address, and so are on one host. Processes of one
// host in different network namespaces have different addresses: they talk over their networks.
[[nodiscard]] bool is_within_host(int fd);

// Makes TCP repeat a lost last segment after about 8 ms instead of the 200 ms meant for the
// Internet. Systems older than Linux 6.15 refuse that and keep their 200 ms.
void repeat_soon(int fd);

// Sets the options that a connected stream between ranks needs: no delay for small messages, early
// repetition, and keepalive, which ends the stream if the other machine is gone.
void prepare_stream(int fd);
// Keeps a stream to another host from sending faster than the host's link of `line_bps` bits a
// second carries, so that its packets do not queue before that link: a lost packet is found and
// repeated behind that queue (docs/measurements/2026-11-18-pace.md). 0: the interface says the
// rate. Does nothing if that is not known either, or above 2 Gb/s, where the queue is short.
void keep_to_line_rate(int fd, std::int64_t line_bps);
// 0, not known, for what is no rate of a link that streams keep to.
[[nodiscard]] std::int64_t line_bps_of(double gbps);

// Listens at "host:port", or at all addresses of this host if the host is "*". Port 0: any free
// port.
[[nodiscard]] Result<Fd> listen_tcp(const std::string& address);

// The shortest round trip that TCP measured on this stream in the last minutes; 0 if none is known.
[[nodiscard]] Duration shortest_round_trip(int fd);

// Sets the TCP options that signals need: small messages leave at once, a dead peer is noticed
// within `timeout_ms`, and lost segments are repeated early.
void set_signal_options(int fd, int timeout_ms);

// Sets the DSCP of what the socket sends, over IPv4 and IPv6. If the system refuses, the packets
// stay in the default class.
void set_dscp(int fd, std::uint8_t dscp);

}  // namespace thalweg::net
