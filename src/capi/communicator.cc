// Communicators of the C API: made, asked and destroyed.
#include <optional>
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
