// A connection to the rendezvous store of the job. Not thread-safe; each thread takes a client of
// its own, so that none waits for another's key.
//
// Every call ends by its deadline (a time of monotonic_now()), or at most 0.1 s later. Errors name
// the store's address and the cause. When the connection is lost, every further call fails; after a
// deadline that passed the client remains usable.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/auth/stream_key.h"
#include "net/io/address.h"
#include "net/io/fd.h"
#include "net/io/stream_check.h"
#include "net/store/store.h"
#include "net/store/store_cover.h"
#include "net/store/store_message.h"

namespace thalweg::net {

class StoreClient final : public Store {
 public:
  // Connects, trying until the deadline, since the store may start later. A refusal by the store is
  // an error at once. `key`: the job key, if the job has one; the store must hold it too. `checks`:
  // whether the connection has checksums, if the job has no key.
  [[nodiscard]] static Result<StoreClient> connect(
      const std::string& address, wire::JobToken token, Time deadline,
      const std::optional<wire::JobKey>& key = {},
      StreamChecks checks = StreamChecks::kBetweenHosts);
  // The same, where the token is asked for once the store listens.
  using FindToken = std::function<wire::JobToken()>;
  [[nodiscard]] static Result<StoreClient> connect(const std::string& address,
                                                   const FindToken& find_token, Time deadline,
                                                   const std::optional<wire::JobKey>& key,
                                                   StreamChecks checks);

  // Keys have 1 to kMaxStoreKey bytes, values at most kMaxStoreValue. Both may hold any bytes.
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
  // Removes the key. Returns false if it did not exist.
  [[nodiscard]] Result<bool> remove(const std::string& key, Time deadline);

  // The address of this host that the connection to the store uses, with the connection's port.
  [[nodiscard]] SocketAddress local_address() const { return SocketAddress::local_of(fd_.get()); }

 private:
  StoreClient(Fd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}

  Status greet(const StoreHello& own, Time deadline, const std::optional<wire::JobKey>& key);
  Status prove(const StreamKey& key, std::uint64_t challenge, Time deadline);
  Result<std::optional<std::string>> ask_for(StoreRequest::What what, const std::string& key,
                                             Time patience, Time deadline);
  Result<std::string> wait_for(StoreRequest::What what, const std::string& key, Time deadline);
  Result<StoreReply> ask(StoreRequest request, Time deadline);
  Result<StoreReply> receive(std::uint32_t number, const std::string& key, Time deadline);
  // Reads at least one more byte, into in_ or, if there is a cover, into covered_. `waiting_for` is
  // for the error message.
  Status read_more(const std::string& waiting_for, Time deadline);
  // Takes what is complete of covered_.
  Status uncover();
  Status send_all(std::span<const std::byte> bytes, Time deadline);
  Error lost(ErrorCode code, const std::string& why);

  Fd fd_;                      // not valid if the connection is lost
  std::string name_;           // "the store at host:port"
  std::optional<Error> lost_;  // why the connection was lost; none while it lives
  std::vector<std::byte> in_;
  // Set as soon as all that follows is sealed or has checksums.
  std::optional<StoreCover> cover_;
  std::vector<std::byte> covered_;  // bytes that were read and not taken yet
  std::uint32_t next_number_ = 0;
};

}  // namespace thalweg::net
