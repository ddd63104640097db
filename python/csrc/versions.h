// The PyTorch versions that the backend compiles against: 2.6 and newer. What the base class of a
// version lacks is an ordinary method there, or left out.
#pragma once

#include <torch/version.h>

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR < 6
#error "thalweg needs PyTorch 2.6 or newer"
#endif

// `override` from 2.7 on.
#if TORCH_VERSION_MINOR >= 7
#define THALWEG_OVERRIDE_SINCE_2_7 override
#else
#define THALWEG_OVERRIDE_SINCE_2_7
#endif

// `override` from 2.9 on.
#if TORCH_VERSION_MINOR >= 9
#define THALWEG_OVERRIDE_SINCE_2_9 override
#else
#define THALWEG_OVERRIDE_SINCE_2_9
#endif

namespace thalweg::python {

// Whether a group can be split: by Backend::split(), which PyTorch calls since 2.9.
constexpr bool kSplits = TORCH_VERSION_MINOR >= 9;

// Whether the caller of a collective waits for it himself. Where the options of a call do not say
// so (before 2.8), Python waits.
template <class Options>
bool is_async(const Options& options) {
  if constexpr (requires { options.asyncOp; }) {
    return options.asyncOp;
  } else {
    return true;
  }
}

// A store with a connection of its own, so that no call waits for those of others. Before 2.8
// stores cannot be copied.
template <class StorePtr>
StorePtr own_store(const StorePtr& store) {
  if constexpr (requires { store->clone(); }) {
    return store->clone();
  } else {
    return store;
  }
}

}  // namespace thalweg::python
