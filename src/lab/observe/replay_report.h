// The summary of a replayed recording (`thalweg trace replay`), as text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "proto/dlcp/record/replay.h"

namespace thalweg::lab {

// Whether the replay gave the recorded answers, and the counts of what was sent and received; the
// first difference if there is one.
[[nodiscard]] nlohmann::ordered_json replay_json(const proto::ReplaySummary& summary);
// The same for people.
[[nodiscard]] std::string replay_text(const proto::ReplaySummary& summary);

}  // namespace thalweg::lab
