// What a client needs at a switch's control socket, and what the environment says of it.
#pragma once

#include <optional>
#include <string>

#include <thalweg/result.h>

#include "net/job/environment.h"
#include "wire/authenticate.h"

namespace thalweg::net {

struct SwitchSecrets {
  std::string token = {};  // the one in the switch's configuration; empty: it has none
  // The key of the switch, as its file holds it. With a key both ends prove that they hold it, and
  // all that follows is sealed (net/auth/greeting.h). None: only switches without a key are used.
  std::optional<wire::JobKey> key = {};
};

// The key of switches: in `file`; if that is empty, in the file that THALWEG_SWITCH_KEY_FILE names;
// if that is not set either, the job key (THALWEG_KEY_FILE). "none" in place of a file means no
// key. `option` is what errors call `file`.
[[nodiscard]] Result<std::optional<wire::JobKey>> switch_key_from(
    const EnvironmentLookup& lookup, const std::string& file = {},
    const char* option = "--key-file");

// That key, and THALWEG_SWITCH_TOKEN.
[[nodiscard]] Result<SwitchSecrets> switch_secrets_from(const EnvironmentLookup& lookup);

}  // namespace thalweg::net
