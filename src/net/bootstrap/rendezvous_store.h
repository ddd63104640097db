// The caller's store as one of ours: waiting is asking again, less and less often.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <thalweg/rendezvous.h>

#include "net/address.h"
#include "net/bootstrap/store.h"

namespace thalweg {

class RendezvousStore final : public Store {
 public:
  explicit RendezvousStore(std::shared_ptr<Rendezvous> rendezvous)
      : rendezvous_(std::move(rendezvous)) {}

  [[nodiscard]] Status set(const std::string& key, const std::string& value,
                           Time deadline) override;
  [[nodiscard]] Result<std::optional<std::string>> find(const std::string& key, Time patience,
                                                        Time deadline) override;
  [[nodiscard]] Result<std::string> get(const std::string& key, Time deadline) override;
  [[nodiscard]] Status wait(const std::string& key, Time deadline) override;
  [[nodiscard]] Result<std::int64_t> add(const std::string& key, std::int64_t delta,
                                         Time deadline) override;
  [[nodiscard]] Result<bool> compare_and_set(const std::string& key,
                                             const std::optional<std::string>& expected,
                                             const std::string& value, Time deadline) override;

 private:
  std::shared_ptr<Rendezvous> rendezvous_;
};

// The address of this host from which packets to `remote` ("host:port") leave; port 0. Nothing is
// sent.
[[nodiscard]] Result<SocketAddress> address_towards(const std::string& remote);

}  // namespace thalweg
