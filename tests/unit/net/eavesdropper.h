// Somebody between two ends who keeps all that passes.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "net/relay.h"

namespace thalweg::net {

class Eavesdropper {
 public:
  Relay::MakeFilter filters() {
    return [this](std::size_t, bool) {
      return [this](std::vector<std::byte>& bytes) {
        const std::lock_guard lock(mutex_);
        heard_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        return true;
      };
    };
  }
  // How often it has heard the text, within one read. Call when all is over.
  [[nodiscard]] int count(const std::string& text) const {
    int found = 0;
    for (std::size_t at = heard_.find(text); at != std::string::npos;
         at = heard_.find(text, at + text.size())) {
      ++found;
    }
    return found;
  }
  [[nodiscard]] std::size_t bytes() const { return heard_.size(); }

 private:
  std::mutex mutex_;
  std::string heard_;
};

}  // namespace thalweg::net
