#include "net/job/scrape_server.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <utility>
#include <vector>

#include "net/io/system.h"
#include "wire/authenticate.h"

namespace thalweg::net {
namespace {

bool would_block() { return errno == EAGAIN || errno == EINTR; }

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
  while (text.ends_with(' ') || text.ends_with('\t')) text.remove_suffix(1);
  return text;
}

bool same_but_for_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

// The value of the first header of this name; empty: there is none.
std::string_view header_in(std::string_view request, std::string_view name) {
  for (std::size_t at = request.find("\r\n"); at != std::string_view::npos;) {
    const std::size_t begin = at + 2;
    at = request.find("\r\n", begin);
    const std::string_view line = request.substr(begin, std::min(at, request.size()) - begin);
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos && same_but_for_case(line.substr(0, colon), name)) {
      return trimmed(line.substr(colon + 1));
    }
  }
  return {};
}

std::string http(std::string_view status, std::string_view body, std::string_view more = "") {
  return fmt::format(
      "HTTP/1.0 {}\r\nContent-Type: text/plain; version=0.0.4\r\n{}"
      "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
      status, more, body.size(), body);
}

}  // namespace

ScrapeServer::ScrapeServer(Fd listener, Fd stop, std::string token,
                           std::function<std::string()> text)
    : listener_(std::move(listener), kMostReaders),
      stop_(std::move(stop)),
      token_(std::move(token)),
      text_(std::move(text)),
      thread_([this] { serve(); }) {}

ScrapeServer::~ScrapeServer() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void ScrapeServer::serve() {
  while (true) {
    std::vector<pollfd> waits{{listener_.fd(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    int patience_ms = -1;
    const Time before = monotonic_now();
    for (const Reader& reader : readers_) {
      const short events = reader.answer.empty() ? POLLIN : POLLOUT;
      waits.push_back({reader.fd.get(), events, 0});
      const int left = static_cast<int>(std::max((reader.until - before).ms(), 0.0)) + 1;
      patience_ms = patience_ms < 0 ? left : std::min(patience_ms, left);
    }
    if (poll(waits.data(), waits.size(), patience_ms) < 0 && errno != EINTR) return;
    if (waits[1].revents != 0) return;
    const Time now = monotonic_now();
    std::size_t place = 2;
    std::erase_if(readers_, [&](Reader& reader) {
      const bool ready = waits[place++].revents != 0;
      return now >= reader.until || (ready && !advance(reader));
    });
    if (waits[0].revents == 0) continue;
    listener_.accept_all([this](Fd client) { admit(std::move(client)); }, [](int /*fd*/) {});
  }
}

void ScrapeServer::admit(Fd fd) {
  Reader reader{.fd = std::move(fd), .until = monotonic_now() + kScrapePatience};
  // Most have asked by now, and take the answer at once.
  if (!advance(reader)) return;
  if (readers_.size() >= kMostReaders) drop_one();
  readers_.push_back(std::move(reader));
}

void ScrapeServer::drop_one() {
  const auto silent =
      std::ranges::find_if(readers_, [](const Reader& reader) { return reader.answer.empty(); });
  readers_.erase(silent == readers_.end() ? readers_.begin() : silent);
}

bool ScrapeServer::advance(Reader& reader) {
  if (reader.answer.empty() && !receive(reader)) return false;
  return reader.answer.empty() || send(reader);
}

bool ScrapeServer::receive(Reader& reader) {
  std::array<char, 1024> some{};
  std::string& request = reader.request;
  // An empty line ends a request.
  while (request.find("\r\n\r\n") == std::string::npos && request.size() < kMostRequest) {
    const ssize_t got = ::recv(reader.fd.get(), some.data(), some.size(), 0);
    if (got <= 0) return got < 0 && would_block();
    request.append(some.data(), static_cast<std::size_t>(got));
  }
  reader.answer = answer_to(request);
  reader.until = monotonic_now() + kScrapePatience;
  return true;
}

std::string ScrapeServer::answer_to(std::string_view request) const {
  if (!may_ask(request)) {
    return http("401 Unauthorized",
                "the job has a key: ask with the token that `thalweg top --print-token --key-file "
                "FILE` prints, as \"Authorization: Bearer TOKEN\"\n",
                "WWW-Authenticate: Bearer\r\n");
  }
  const bool known = request.starts_with("GET / ") || request.starts_with("GET /metrics");
  return known ? http("200 OK", text_()) : http("404 Not Found", "there is only /metrics\n");
}

bool ScrapeServer::may_ask(std::string_view request) const {
  constexpr std::string_view kScheme = "Bearer ";
  if (token_.empty()) return true;
  const std::string_view given = header_in(request, "Authorization");
  if (!same_but_for_case(given.substr(0, kScheme.size()), kScheme)) return false;
  return wire::same_secret(std::as_bytes(std::span(trimmed(given.substr(kScheme.size())))),
                           std::as_bytes(std::span(token_)));
}

bool ScrapeServer::send(Reader& reader) {
  while (reader.sent < reader.answer.size()) {
    const ssize_t sent = ::send(reader.fd.get(), &reader.answer[reader.sent],
                                reader.answer.size() - reader.sent, MSG_NOSIGNAL);
    if (sent < 0) return would_block();
    reader.sent += static_cast<std::size_t>(sent);
  }
  shutdown(reader.fd.get(), SHUT_WR);
  return false;
}

}  // namespace thalweg::net
