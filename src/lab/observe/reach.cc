#include "lab/observe/reach.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/number.h"
#include "base/suggest.h"
#include "net/io/address.h"
#include "net/io/fd.h"
#include "net/io/tcp.h"

namespace thalweg::lab {
namespace {

constexpr int kMaxPort = 65535;
constexpr std::size_t kMaxKnownHosts = 1000;

// The names of hosts that this one knows without asking anybody.
std::vector<std::string> known_hosts() {
  std::vector<std::string> names{"localhost"};
  std::array<char, 256> own{};
  if (gethostname(own.data(), own.size() - 1) == 0) names.emplace_back(own.data());
  std::ifstream file("/etc/hosts");
  for (std::string line; names.size() < kMaxKnownHosts && std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name;
    words >> name;  // the address
    while (words >> name) names.push_back(name);
  }
  return names;
}

// The port with letters that look like digits replaced by these; 0 if that is no port either.
int port_in(std::string_view text) {
  std::string digits;
  for (const char c : text) {
    digits += c == 'o' || c == 'O' ? '0' : c == 'l' || c == 'I' ? '1' : c;
  }
  const int port = number_in<int>(digits).value_or(0);
  return port > 0 && port <= kMaxPort ? port : 0;
}

// What "host:port" was probably meant by a text that is no such address.
std::string suggest_address(const std::string& address, const Listener& expected) {
  const std::size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon);
  if (host.empty()) return "";
  const bool has_port = colon != std::string::npos;
  const int port = has_port ? port_in(std::string_view(address).substr(colon + 1)) : 0;
  return fmt::format("; did you mean '{}:{}'?", host, port > 0 ? port : expected.usual_port);
}

std::string suggest_host(const net::HostPort& given) {
  const auto meant = nearest(given.host, known_hosts());
  return meant ? fmt::format("; did you mean '{}:{}'?", *meant, given.port) : "";
}

bool refuses(const net::SocketAddress& address, Time until) {
  const net::Fd stream(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (stream.get() < 0) return false;
  if (::connect(stream.get(), address.get(), address.size()) == 0) return false;
  if (errno != EINPROGRESS) return errno == ECONNREFUSED;
  if (!net::wait_for_socket(stream.get(), POLLOUT, until)) return false;
  int failure = 0;
  socklen_t size = sizeof failure;
  ::getsockopt(stream.get(), SOL_SOCKET, SO_ERROR, &failure, &size);
  return failure == ECONNREFUSED;
}

}  // namespace

Status check_listening(const std::string& address, const Listener& expected, Time until) {
  const Result<net::HostPort> parts = net::HostPort::parse(address);
  if (!parts.ok()) {
    return Error(parts.error().message() + suggest_address(address, expected));
  }
  const Result<net::SocketAddress> found = net::SocketAddress::resolve(address);
  if (!found.ok()) return Error(found.error().message() + suggest_host(*parts));
  if (!refuses(*found, until)) return ok_status();
  const std::string other = parts->port == expected.usual_port
                                ? ""
                                : fmt::format("; the usual port is {}", expected.usual_port);
  return Error(fmt::format("no {} listens at {}: connection refused ({}{})", expected.what, address,
                           expected.hint, other));
}

}  // namespace thalweg::lab
