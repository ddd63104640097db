#include <thalweg/parameter_client.h>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/units.h"
#include "net/address.h"
#include "net/fd.h"
#include "net/system.h"
#include "net/tcp.h"
#include "wire/ps_message.h"

namespace thalweg {

class ParameterClient::Core {
 public:
  Core(ParameterClientOptions options, Fd fd) : options_(std::move(options)), fd_(std::move(fd)) {}

  // Sends a request and receives its answer; a value must have as many elements as `out`.
  Result<PsHeader> ask(PsKind kind, const std::string& name, std::span<const float> in,
                       std::span<float> out) {
    if (name.empty() || name.size() > kMaxPsText) {
      return Error(
          fmt::format("name: {} bytes; from 1 to {} are allowed", name.size(), kMaxPsText));
    }
    if (!failed_.empty()) return Error(failed_);
    until_ = monotonic_now() + Duration::nanoseconds(options_.timeout.count());
    PsHeader header;
    header.kind = kind;
    header.worker = options_.worker;
    header.text = static_cast<std::uint32_t>(name.size());
    header.elements = in.size();
    std::array<std::byte, kPsHeaderSize> bytes;
    encode_ps_header(header, bytes);
    THALWEG_TRY_STATUS(send_all(bytes));
    THALWEG_TRY_STATUS(send_all(std::as_bytes(std::span(name))));
    THALWEG_TRY_STATUS(send_all(std::as_bytes(in)));
    THALWEG_TRY_STATUS(receive_all(bytes));
    if (decode_ps_header(bytes, header) != WireError::kNone) return fail("does not make sense");
    if (header.kind == PsKind::kError) {
      std::string text(header.text, '\0');
      THALWEG_TRY_STATUS(receive_all(std::as_writable_bytes(std::span(text))));
      return Error(fmt::format("{}: {}", server(), text));
    }
    if (header.kind != PsKind::kValue || header.elements != out.size()) {
      return fail(fmt::format("sent {} elements; {} were expected", header.elements, out.size()));
    }
    THALWEG_TRY_STATUS(receive_all(std::as_writable_bytes(out)));
    return header;
  }

 private:
  [[nodiscard]] std::string server() const { return "the server at " + options_.server; }
  Error fail(const std::string& why) {
    failed_ = fmt::format("{} {}", server(), why);
    return Error(failed_);
  }

  Status send_all(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent >= 0) {
        bytes = bytes.subspan(static_cast<std::size_t>(sent));
      } else if (errno != EAGAIN) {
        return fail(system_error("is gone", errno).message());
      } else if (!wait_for_socket(fd_.get(), POLLOUT, until_)) {
        return fail("takes nothing more");
      }
    }
    return ok_status();
  }

  Status receive_all(std::span<std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t got = recv(fd_.get(), bytes.data(), bytes.size(), 0);
      if (got > 0) {
        bytes = bytes.subspan(static_cast<std::size_t>(got));
      } else if (got == 0) {
        return fail("has closed the connection");
      } else if (errno != EAGAIN) {
        return fail(system_error("is gone", errno).message());
      } else if (!wait_for_socket(fd_.get(), POLLIN, until_)) {
        return fail("did not answer in time");
      }
    }
    return ok_status();
  }

  ParameterClientOptions options_;
  Fd fd_;
  Time until_;
  std::string failed_;
};

ParameterClient::ParameterClient(std::unique_ptr<Core> core) : core_(std::move(core)) {}
ParameterClient::~ParameterClient() = default;
ParameterClient::ParameterClient(ParameterClient&&) noexcept = default;
ParameterClient& ParameterClient::operator=(ParameterClient&&) noexcept = default;

Result<ParameterClient> ParameterClient::connect(const ParameterClientOptions& options) {
  if (options.timeout <= std::chrono::nanoseconds(0)) {
    return Error(fmt::format("timeout: {} ns; it must be above 0", options.timeout.count()));
  }
  THALWEG_TRY(const SocketAddress remote, SocketAddress::resolve(options.server));
  const Time until = monotonic_now() + Duration::nanoseconds(options.timeout.count());
  THALWEG_TRY(Fd fd, connect_tcp(remote, "the server at " + options.server, until));
  prepare_stream(fd.get());
  return ParameterClient(std::make_unique<Core>(options, std::move(fd)));
}

Status ParameterClient::init(const std::string& name, std::span<float> values) {
  THALWEG_TRY([[maybe_unused]] const PsHeader answer,
              core_->ask(PsKind::kInit, name, values, values));
  return ok_status();
}

Status ParameterClient::push(const std::string& name, std::span<const float> gradient) {
  THALWEG_TRY([[maybe_unused]] const PsHeader answer,
              core_->ask(PsKind::kPush, name, gradient, {}));
  return ok_status();
}

Result<std::uint64_t> ParameterClient::pull(const std::string& name, std::span<float> values) {
  THALWEG_TRY(const PsHeader answer, core_->ask(PsKind::kPull, name, {}, values));
  return answer.clock;
}

}  // namespace thalweg
