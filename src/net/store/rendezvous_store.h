// Makes the caller's store (thalweg/rendezvous.h) usable as a Store. It waits for a key by asking
// again and again, less and less often.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <thalweg/rendezvous.h>

#include "net/io/address.h"
#include "net/store/store.h"

namespace thalweg::net {

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

// The address of this host that packets to `remote` ("host:port") are sent from, with port 0. Sends
// nothing.
[[nodiscard]] Result<SocketAddress> address_towards(const std::string& remote);

}  // namespace thalweg::net
