// The addresses by which a communicator's ranks find each other, the streams between them, and the
// channels.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/prng.h"
#include "net/group/api/communicator_core.h"
#include "net/io/system.h"
#include "net/io/tcp.h"
#include "net/job/interfaces.h"

namespace thalweg {
namespace {

// What one thread moves in each direction.
constexpr double kThreadBps = 10e9;

// The addresses of the ranks that the store has told. They do not change, and a stream that moves
// to another path must not need the store, whose own path may be the one that died.
class KnownAddresses {
 public:
  template <class Ask>
  Result<std::string> get(int rank, const Ask& ask) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto known = addresses_.find(rank); known != addresses_.end()) return known->second;
    }
    Result<std::string> address = ask();
    if (!address.ok()) return address;
    const std::lock_guard lock(mutex_);
    return addresses_.emplace(rank, *address).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<int, std::string> addresses_;
};

}  // namespace

Result<Communicator::Core::Listening> Communicator::Core::prepare_streams(
    net::EngineOptions& engine, const std::string& prefix, Time until) {
  const net::Environment& environment = job_->environment;
  if (job_->sockets) return use_places(engine);
  Listening listening{.addresses = {*net::SocketAddress::numeric("127.0.0.1:0")}};
  if (job_->client) {
    THALWEG_TRY(listening.addresses,
                net::rank_addresses(environment.interfaces, job_->own_address));
  }
  std::vector<std::string> places;
  for (const net::SocketAddress& address : listening.addresses) {
    THALWEG_TRY(net::Fd socket, net::listen_tcp(address.to_string()));
    places.push_back(net::SocketAddress::local_of(socket.get()).unmapped().to_string());
    listening.sockets.push_back(std::move(socket));
  }
  if (job_->job_key) {
    engine.streams.joiner.key = std::make_shared<net::StreamKey>(
        *job_->job_key, engine.streams.joiner.signature, net::random_number(), environment.encrypt);
  }
  listening.own = fmt::format("{}", fmt::join(places, ","));
  if (engine.streams.joiner.key) listening.own = engine.streams.joiner.key->address(listening.own);
  if (job_->client) {
    THALWEG_TRY_STATUS(job_->set(fmt::format("{}{}", prefix, rank_), listening.own, until));
  }
  engine.streams.connect = [job = job_, prefix, key = engine.streams.joiner.key,
                            own = listening.addresses, known = std::make_shared<KnownAddresses>()](
                               int rank, std::uint32_t lane, Time by) -> Result<net::DialedStream> {
    const Result<std::string> address =
        known->get(rank, [&] { return job->get(fmt::format("{}{}", prefix, rank), by); });
    if (!address.ok()) {
      // The rank has not come, unless the store itself is the problem.
      const bool late = address.error().code() == ErrorCode::kTimeout;
      return late ? address.error().blaming(rank) : address.error();
    }
    const auto each = static_cast<std::size_t>(job->environment.streams);
    Result<net::DialedStream> stream =
        net::connect_stream(*address, key.get(), by, {.own = own, .each = each, .stream = lane});
    if (!stream.ok()) return stream.error().blaming(rank);
    return stream;
  };
  return listening;
}

// The other ranks know this one's addresses already, and this one theirs.
Result<Communicator::Core::Listening> Communicator::Core::use_places(net::EngineOptions& engine) {
  net::PlaceSockets own = *std::exchange(job_->sockets, std::nullopt);
  if (job_->job_key) {
    engine.streams.joiner.key = std::make_shared<net::StreamKey>(
        *job_->job_key, engine.streams.joiner.signature, own.challenge, job_->environment.encrypt);
  }
  engine.streams.refusals_are_final = true;
  engine.streams.connect = [streams = std::exchange(job_->streams, {}),
                            key = engine.streams.joiner.key, addresses = own.addresses,
                            each = static_cast<std::size_t>(job_->environment.streams)](
                               int rank, std::uint32_t lane, Time by) -> Result<net::DialedStream> {
    Result<net::DialedStream> stream =
        net::connect_stream(streams[static_cast<std::size_t>(rank)], key.get(), by,
                            {.own = addresses, .each = each, .stream = lane, .listens = true});
    if (!stream.ok()) return stream.error().blaming(rank);
    return stream;
  };
  return Listening{std::move(own.addresses), std::move(own.sockets), std::move(own.streams)};
}

// Whether the network between the ranks is faster than one thread; none: it is not known.
std::optional<bool> Communicator::Core::is_fast(const Listening& listening, int local) const {
  if (local == job_->environment.size) return true;  // all ranks are on this host
  const double known = options_.dlcp_line_rate_gbps * 1e9;
  const double bps =
      known > 0 ? known : static_cast<double>(net::interface_bps(listening.addresses.front()));
  return bps > 0 ? std::optional(bps > kThreadBps) : std::nullopt;
}

Status Communicator::Core::prepare_channels(net::EngineOptions& engine, const Listening& listening,
                                            const std::string& prefix, Time until) {
  if (size_ == 1) return ok_status();
  const net::Environment& environment = job_->environment;
  net::ChannelsOptions channels;
  channels.least_part = options_.channel_bytes;
  channels.is_first = rank_ == 0;
  channels.log = job_->log;
  // A number that is configured holds on any network.
  const int local = environment.local_size.value_or(environment.size);
  channels.fast = environment.channels ? std::optional(true) : is_fast(listening, local);
  channels.most =
      static_cast<std::size_t>(environment.channels.value_or(net::usual_channels(local)));
  channels.say = [job = job_, prefix](std::size_t from, const std::string& word, Time by) {
    return job->set(fmt::format("{}channels/{}", prefix, from), word, by);
  };
  channels.hear = [job = job_, prefix](std::size_t from, Time by) {
    return job->get(fmt::format("{}channels/{}", prefix, from), by);
  };
  // Only Channels::start() calls this, so the Core that it uses still exists.
  channels.make_engine = [this, prefix, like = engine](
                             std::size_t number, auto on_broken,
                             Time by) -> Result<std::shared_ptr<net::Engine>> {
    net::EngineOptions options = like;
    std::uint64_t& signature = options.streams.joiner.signature;
    signature = mix_bits(signature + number);
    options.on_broken = std::move(on_broken);
    options.works_alone = true;
    // The first engine compares calls and announces failures.
    options.consult = nullptr;
    options.streams.log = job_->log.quieter();
    THALWEG_TRY(Listening own,
                prepare_streams(options, fmt::format("{}channel/{}/", prefix, number), by));
    return net::Engine::make(std::move(options), std::move(own.sockets));
  };
  channels_ = std::make_shared<net::Channels>(std::move(channels));
  engine.on_broken = [channels = std::weak_ptr(channels_)](const Error& why) {
    if (const auto alive = channels.lock()) alive->broken(why);
  };
  return channels_->open(until);
}

void Communicator::Core::prepare_messages(net::EngineOptions& engine, const std::string& own) {
  messages_ = std::make_shared<Messages>();
  messages_->options = {.rank = rank_,
                        .size = size_,
                        .signature = engine.streams.joiner.signature,
                        .checks = engine.streams.joiner.checks,
                        .on_spoiled_frame = engine.streams.joiner.on_spoiled_frame,
                        .connect = [connect = engine.streams.connect](
                                       int rank, Time by) { return connect(rank, 0, by); },
                        .broken = {}};
  engine.streams.on_message_stream = [messages = messages_](int rank, net::CheckedStream stream) {
    const Result<std::shared_ptr<net::Mailbox>> box = messages->get();
    if (box.ok()) (*box)->adopt(rank, std::move(stream));
  };
  // A process that is alone can still send to itself.
  if (!job_->client) {
    messages_->options.connect = [own, key = engine.streams.joiner.key](int /*rank*/, Time by) {
      return net::connect_stream(own, key.get(), by);
    };
  }
}

}  // namespace thalweg
