#include "launch/system_command.h"

#include <fmt/core.h>

#include <chrono>
#include <sstream>

#include "launch/child_process.h"

namespace thalweg::launch {
namespace {

constexpr std::chrono::seconds kCommandLimit{10};

}  // namespace

Status system_command(const std::string& line, const std::string& input) {
  ChildRequest request;
  std::istringstream words(line);
  for (std::string word; words >> word;) request.command.push_back(word);
  request.input = input;
  request.limit = kCommandLimit;
  THALWEG_TRY(const ChildOutcome outcome, run_child(request));
  if (outcome.exit_code == 0) return ok_status();
  return Error(fmt::format("'{}' failed: {}", line, outcome.errors + outcome.output));
}

}  // namespace thalweg::launch
