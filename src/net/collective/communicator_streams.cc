// By which addresses a communicator's ranks find each other, the streams between them, and its
// channels.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "base/prng.h"
#include "net/bootstrap/interfaces.h"
#include "net/collective/communicator_core.h"
#include "net/system.h"
#include "net/tcp.h"

namespace thalweg {

Result<Communicator::Core::Listening> Communicator::Core::prepare_streams(EngineOptions& engine,
                                                                          const std::string& prefix,
                                                                          Time until) {
  const Environment& environment = job_->environment;
  Listening listening{.addresses = {*SocketAddress::numeric("127.0.0.1:0")}};
  if (job_->client) {
    THALWEG_TRY(listening.addresses, rank_addresses(environment.interfaces, job_->own_address));
  }
  std::vector<std::string> places;
  for (const SocketAddress& address : listening.addresses) {
    THALWEG_TRY(Fd socket, listen_tcp(address.to_string()));
    places.push_back(SocketAddress::local_of(socket.get()).unmapped().to_string());
    listening.sockets.push_back(std::move(socket));
  }
  if (job_->job_key) {
    engine.key = std::make_shared<StreamKey>(*job_->job_key, engine.signature, random_number());
  }
  listening.own = fmt::format("{}", fmt::join(places, ","));
  if (engine.key) listening.own = engine.key->address(listening.own);
  if (job_->client) {
    THALWEG_TRY_STATUS(job_->set(fmt::format("{}{}", prefix, rank_), listening.own, until));
  }
  engine.connect = [job = job_, prefix, key = engine.key, own = listening.addresses](
                       int rank, std::uint32_t lane, Time by) -> Result<DialedStream> {
    THALWEG_TRY(const std::string address, job->get(fmt::format("{}{}", prefix, rank), by));
    const auto each = static_cast<std::size_t>(job->environment.streams);
    return connect_stream(address, key.get(), by, {.own = own, .each = each, .stream = lane});
  };
  return listening;
}

Status Communicator::Core::prepare_channels(EngineOptions& engine, const std::string& prefix,
                                            Time until) {
  if (size_ == 1) return ok_status();
  if (options_.channel_bytes == 0) return Error("channel_bytes: 0; it must be above 0");
  const Environment& environment = job_->environment;
  ChannelsOptions channels;
  channels.least_part = options_.channel_bytes;
  channels.is_first = rank_ == 0;
  channels.at_once = environment.channels.has_value();
  channels.most = static_cast<std::size_t>(environment.channels.value_or(
      usual_channels(environment.local_size.value_or(environment.size))));
  channels.say = [job = job_, prefix](std::size_t from, const std::string& word, Time by) {
    return job->set(fmt::format("{}channels/{}", prefix, from), word, by);
  };
  channels.hear = [job = job_, prefix](std::size_t from, Time by) {
    return job->get(fmt::format("{}channels/{}", prefix, from), by);
  };
  // Only what start() calls uses this object.
  channels.make_engine = [this, prefix, like = engine](std::size_t number, auto on_broken,
                                                       Time by) -> Result<std::shared_ptr<Engine>> {
    EngineOptions options = like;
    options.signature = mix_bits(like.signature + number);
    options.on_broken = std::move(on_broken);
    options.works_alone = true;
    // The first engine compares calls, and tells the store.
    options.compare_calls = nullptr;
    options.announce_failure = nullptr;
    THALWEG_TRY(Listening listening,
                prepare_streams(options, fmt::format("{}channel/{}/", prefix, number), by));
    return Engine::make(std::move(options), std::move(listening.sockets));
  };
  channels_ = std::make_shared<Channels>(std::move(channels));
  engine.on_broken = [channels = std::weak_ptr(channels_)](const std::string& why) {
    if (const auto alive = channels.lock()) alive->broken(why);
  };
  return channels_->open(until);
}

void Communicator::Core::prepare_messages(EngineOptions& engine, const std::string& own) {
  messages_ = std::make_shared<Messages>();
  messages_->options = {
      .rank = rank_,
      .size = size_,
      .signature = engine.signature,
      .connect = [connect = engine.connect](int rank, Time by) { return connect(rank, 0, by); },
      .broken = {}};
  engine.on_message_stream = [messages = messages_](int rank, Fd stream) {
    const Result<std::shared_ptr<Mailbox>> box = messages->get();
    if (box.ok()) (*box)->adopt(rank, std::move(stream));
  };
  // A process that is alone can still send to itself.
  if (!job_->client) {
    messages_->options.connect = [own, key = engine.key](int /*rank*/, Time by) {
      return connect_stream(own, key.get(), by);
    };
  }
}

}  // namespace thalweg
