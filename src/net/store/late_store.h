// A store that is connected to when it is first used.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "net/store/store.h"

namespace thalweg::net {

class LateStore final : public Store {
 public:
  explicit LateStore(OpenStore open) : open_(std::move(open)) {}

  [[nodiscard]] Status set(const std::string& key, const std::string& value,
                           Time deadline) override {
    THALWEG_TRY_STATUS(connect(deadline));
    return store_->set(key, value, deadline);
  }
  [[nodiscard]] Result<std::optional<std::string>> find(const std::string& key, Time patience,
                                                        Time deadline) override {
    THALWEG_TRY_STATUS(connect(deadline));
    return store_->find(key, patience, deadline);
  }
  [[nodiscard]] Result<std::string> get(const std::string& key, Time deadline) override {
    THALWEG_TRY_STATUS(connect(deadline));
    return store_->get(key, deadline);
  }
  [[nodiscard]] Status wait(const std::string& key, Time deadline) override {
    THALWEG_TRY_STATUS(connect(deadline));
    return store_->wait(key, deadline);
  }
  [[nodiscard]] Result<std::int64_t> add(const std::string& key, std::int64_t delta,
                                         Time deadline) override {
    THALWEG_TRY_STATUS(connect(deadline));
    return store_->add(key, delta, deadline);
  }
  [[nodiscard]] Result<bool> compare_and_set(const std::string& key,
                                             const std::optional<std::string>& expected,
                                             const std::string& value, Time deadline) override {
    THALWEG_TRY_STATUS(connect(deadline));
    return store_->compare_and_set(key, expected, value, deadline);
  }

 private:
  Status connect(Time deadline) {
    if (store_) return ok_status();
    THALWEG_TRY(store_, open_(deadline));
    return ok_status();
  }

  OpenStore open_;
  std::unique_ptr<Store> store_;
};

}  // namespace thalweg::net
