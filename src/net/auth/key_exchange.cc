#include "net/auth/key_exchange.h"

#include "net/io/system.h"

namespace thalweg::net {

KeyExchange::KeyExchange(const EndpointOptions& options, Role role) : job_(options.job_token) {
  if (options.job_key.empty()) return;
  key_ = wire::JobKey::from_hex(options.job_key).value();
  outgoing_.sender = static_cast<std::uint32_t>(role);
  outgoing_.receiver =
      static_cast<std::uint32_t>(role == Role::kConnected ? Role::kAccepted : Role::kConnected);
  outgoing_.sender_session = random_number();
}

void KeyExchange::fill(Hello& hello) const {
  hello.keyed = keyed();
  hello.session = outgoing_.sender_session;
}

void KeyExchange::on_hellos(std::span<const std::byte, kHelloSize> first,
                            std::span<const std::byte, kHelloSize> second,
                            std::uint64_t their_session) {
  outgoing_.receiver_session = their_session;
  ours_ = wire::prove_session(*key_, outgoing_.sender, first, second);
  theirs_ = wire::prove_session(*key_, outgoing_.receiver, first, second);
}

bool KeyExchange::proves(std::span<const std::byte, wire::kSessionProofSize> theirs) const {
  return wire::same_secret(theirs, theirs_);
}

std::unique_ptr<PacketGuard> KeyExchange::guard() const {
  return std::make_unique<PacketGuard>(job_, *key_, outgoing_);
}

}  // namespace thalweg::net
