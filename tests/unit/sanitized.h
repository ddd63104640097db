// Whether a test runs under a sanitizer, where everything takes several times as long. The presets
// with sanitizers are clang's, which says so by features.
#pragma once

#ifndef __has_feature
#define __has_feature(feature) 0
#endif

namespace thalweg {

#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kUnderSanitizer = true;
#else
inline constexpr bool kUnderSanitizer = false;
#endif

}  // namespace thalweg
