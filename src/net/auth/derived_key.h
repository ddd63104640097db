// Keys for single purposes, made from the job key (THALWEG_KEY_FILE). A key of one purpose says
// nothing about the job key or about the keys of other purposes.
#pragma once

#include <cstdint>
#include <string>

#include "wire/authenticate.h"

namespace thalweg::net {

// The numbers differ from the roles of all provers (net/auth/stream_key.cc,
// net/auth/key_exchange.h), so that no proof that goes over the network is a key.
enum class KeyPurpose : std::uint32_t {
  kAtpJob = 0x200,
  kSwitchControl = 0x201,
  kParameterServer = 0x202,
  kMetrics = 0x203,
};

// `salt`: a number that the ends of the purpose agree on.
[[nodiscard]] wire::JobKey derived_key(const wire::JobKey& job_key, KeyPurpose purpose,
                                       std::uint64_t salt = 0);

// 32 hexadecimal digits, which JobKey::from_hex() reads.
[[nodiscard]] std::string hex_of(const wire::JobKey& key);

}  // namespace thalweg::net
