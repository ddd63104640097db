// Communicators of the C API: made, asked and destroyed.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include <thalweg/thalweg.h>

#include "capi/arguments.h"
#include "capi/guarded.h"
#include "capi/handles.h"

namespace thalweg::capi {
namespace {

// Gives the caller what a call made, which may be nothing.
Status give(Result<std::optional<Communicator>> result, thalweg_communicator** made) {
  if (!result.ok()) return result.error();
  if (result->has_value()) *made = new thalweg_communicator{.all = *std::move(*result)};
  return ok_status();
}

Result<std::optional<Communicator>> optional_of(Result<Communicator> result) {
  if (!result.ok()) return result.error();
  return std::optional<Communicator>(std::move(*result));
}

// Runs `make`, which returns a communicator, an error or nothing.
template <class Make>
int made_by(thalweg_communicator** made, Make make) {
  return guarded([&]() -> Status {
    THALWEG_TRY_STATUS(needed("made", made != nullptr));
    *made = nullptr;
    return give(make(), made);
  });
}

std::string line_of(const AutoDecision& one) {
  return fmt::format("{}: {}{}; {} calls, {} trials of {:.1f} ms, {:.1f} ms of them extra; {}\n",
                     one.kind, one.chosen, one.decided ? "" : ", trials go on", one.calls,
                     one.trials, one.trials_ms, one.extra_ms, one.why);
}

}  // namespace
}  // namespace thalweg::capi

using namespace thalweg;
using namespace thalweg::capi;

using MadeCommunicator = Result<std::optional<Communicator>>;

int thalweg_create(const thalweg_options* options, thalweg_communicator** made) {
  return made_by(made, [&]() -> MadeCommunicator {
    THALWEG_TRY(const CommunicatorOptions checked, options_of(options));
    return optional_of(Communicator::create(checked));
  });
}

void thalweg_destroy(thalweg_communicator* communicator) { delete communicator; }

int thalweg_rank(const thalweg_communicator* communicator, int* rank) {
  return guarded([&]() -> Status {
    THALWEG_TRY(const Communicator* const all, communicator_of(communicator));
    THALWEG_TRY_STATUS(needed("rank", rank != nullptr));
    *rank = all->rank();
    return ok_status();
  });
}

int thalweg_size(const thalweg_communicator* communicator, int* size) {
  return guarded([&]() -> Status {
    THALWEG_TRY(const Communicator* const all, communicator_of(communicator));
    THALWEG_TRY_STATUS(needed("size", size != nullptr));
    *size = all->size();
    return ok_status();
  });
}

int thalweg_has_switch(const thalweg_communicator* communicator, int* has) {
  return guarded([&]() -> Status {
    THALWEG_TRY(const Communicator* const all, communicator_of(communicator));
    THALWEG_TRY_STATUS(needed("has", has != nullptr));
    *has = all->has_switch() ? 1 : 0;
    return ok_status();
  });
}

int thalweg_auto_choices(const thalweg_communicator* communicator, char* text, size_t size,
                         size_t* length) {
  return guarded([&]() -> Status {
    THALWEG_TRY(const Communicator* const all, communicator_of(communicator));
    THALWEG_TRY_STATUS(needed("text", text != nullptr || size == 0));
    THALWEG_TRY_STATUS(needed("length", length != nullptr));
    std::string lines;
    for (const AutoDecision& one : all->auto_choices()) lines += line_of(one);
    *length = lines.size();
    if (size == 0) return ok_status();
    const std::size_t fits = std::min(size - 1, lines.size());
    std::memcpy(text, lines.data(), fits);
    text[fits] = '\0';
    return ok_status();
  });
}

int thalweg_broken(const thalweg_communicator* communicator) {
  return guarded([&]() -> Status {
    THALWEG_TRY(const Communicator* const all, communicator_of(communicator));
    const std::optional<Error> why = all->broken();
    if (why) return *why;
    return ok_status();
  });
}

int thalweg_leave(const thalweg_communicator* communicator) {
  return guarded([&]() -> Status {
    THALWEG_TRY(const Communicator* const all, communicator_of(communicator));
    all->leave();
    return ok_status();
  });
}

int thalweg_split(const thalweg_communicator* communicator, int color, int key,
                  const thalweg_call_options* options, thalweg_communicator** made) {
  return made_by(made, [&]() -> MadeCommunicator {
    THALWEG_TRY(const Communicator* const all, communicator_of(communicator));
    THALWEG_TRY(const CallOptions call, call_of(options));
    return all->split(color, key, call);
  });
}

int thalweg_grow(const thalweg_communicator* communicator, const thalweg_call_options* options,
                 thalweg_communicator** made) {
  return made_by(made, [&]() -> MadeCommunicator {
    THALWEG_TRY(const Communicator* const all, communicator_of(communicator));
    THALWEG_TRY(const CallOptions call, call_of(options));
    return all->grow(call);
  });
}

int thalweg_shrink(const thalweg_communicator* communicator, double window_s,
                   thalweg_communicator** made) {
  return made_by(made, [&]() -> MadeCommunicator {
    THALWEG_TRY(const Communicator* const all, communicator_of(communicator));
    THALWEG_TRY(const std::chrono::nanoseconds window, duration_of("window_s", window_s));
    return optional_of(all->shrink(window));
  });
}
