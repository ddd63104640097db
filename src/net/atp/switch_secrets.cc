#include "net/atp/switch_secrets.h"

namespace thalweg::net {
namespace {

constexpr const char* kKeyVariable = "THALWEG_SWITCH_KEY_FILE";

}  // namespace

Result<std::optional<wire::JobKey>> switch_key_from(const EnvironmentLookup& lookup,
                                                    const std::string& file, const char* option) {
  const std::string named = file.empty() ? lookup(kKeyVariable).value_or("") : file;
  if (named.empty()) return job_key_from(lookup);
  if (named == "none") return std::optional<wire::JobKey>();
  Result<std::optional<wire::JobKey>> key = job_key_in(named);
  if (!key.ok()) return key.error().within(file.empty() ? kKeyVariable : option);
  return key;
}

Result<SwitchSecrets> switch_secrets_from(const EnvironmentLookup& lookup) {
  SwitchSecrets secrets{.token = lookup("THALWEG_SWITCH_TOKEN").value_or("")};
  THALWEG_TRY(secrets.key, switch_key_from(lookup));
  return secrets;
}

}  // namespace thalweg::net
