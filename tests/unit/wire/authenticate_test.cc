#include "wire/authenticate.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "base/prng.h"
#include "wire/byte_io.h"

namespace thalweg::wire {
namespace {

constexpr JobToken kJob = 0x1234'5678'9abc'def0;
constexpr KeyScope kScope{.sender = 3, .receiver = 5, .sender_session = 11, .receiver_session = 13};

JobKey key_of(std::string_view hex = "000102030405060708090a0b0c0d0e0f") {
  return JobKey::from_hex(hex).value();
}

std::vector<std::byte> data_packet(std::uint64_t sequence, std::size_t payload, bool keyed = true,
                                   JobToken job = kJob) {
  std::vector<std::byte> packet(data_overhead(keyed) + payload);
  const DataHeader header{.job = job,
                          .sequence = sequence,
                          .transfer = 7,
                          .segment = 9,
                          .sent_us = 77,
                          .length = static_cast<std::uint16_t>(payload),
                          .tag = {},
                          .retransmission = false,
                          .keyed = keyed,
                          .session = keyed ? session_mark(kScope) : std::uint16_t{0}};
  encode_data_header(header, packet);
  for (std::size_t i = data_overhead(keyed); i < packet.size(); ++i) {
    packet[i] = static_cast<std::byte>(i * 31);
  }
  return packet;
}

std::vector<std::byte> sealed_data(Sealer& sealer, std::uint64_t sequence,
                                   std::size_t payload = 100) {
  std::vector<std::byte> packet = data_packet(sequence, payload);
  const std::span<std::byte> whole(packet);
  sealer.seal_data(sequence, whole.first<data_overhead(true)>(),
                   whole.subspan(data_overhead(true)));
  return packet;
}

std::vector<std::byte> control_message(std::uint64_t sequence, bool keyed = true) {
  const ControlMessage message = CancelMessage{.transfer = 4, .text = "enough"};
  const ControlEnvelope about{.job = kJob, .sequence = sequence, .keyed = keyed};
  std::vector<std::byte> bytes(control_size(message, about));
  encode_control(message, about, bytes);
  return bytes;
}

Refusal check_data(Verifier& verifier, std::span<const std::byte> packet) {
  DataHeader header;
  EXPECT_EQ(decode_data_header(packet, header), WireError::kNone);
  return verifier.check_data(packet, header);
}

Refusal check_control(Verifier& verifier, std::span<const std::byte> bytes) {
  ControlMessage message;
  ControlEnvelope about;
  EXPECT_EQ(decode_control(bytes, message, about), WireError::kNone);
  return verifier.check_control(bytes, about);
}

TEST(JobKey, from_hex__reads_both_cases) {
  const JobKey key = key_of("00ff10Ab000000000000000000000001");
  EXPECT_EQ(key.bytes()[0], std::byte{0});
  EXPECT_EQ(key.bytes()[1], std::byte{0xff});
  EXPECT_EQ(key.bytes()[3], std::byte{0xab});
  EXPECT_EQ(key.bytes()[15], std::byte{1});
}

TEST(JobKey, from_hex__refuses_without_telling_the_key) {
  const auto short_key = JobKey::from_hex("deadbeef");
  ASSERT_FALSE(short_key.ok());
  EXPECT_NE(short_key.error().message().find("32 hexadecimal digits, not 8"), std::string::npos);
  EXPECT_EQ(short_key.error().message().find("deadbeef"), std::string::npos);
  const auto bad = JobKey::from_hex("0001020304050607x8090a0b0c0d0e0f");
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.error().message().find("character 17"), std::string::npos);
  EXPECT_FALSE(JobKey::from_hex("").ok());
  EXPECT_FALSE(JobKey::from_hex("0001020304050607 8090a0b0c0d0e0f").ok());
}

TEST(Gmac, tag__does_not_depend_on_where_the_bytes_are_split) {
  Gmac gmac(key_of(), kScope, KeyUse::kData);
  const std::vector<std::byte> bytes = data_packet(1, 1400);
  const std::span<const std::byte> all(bytes);
  const KeyedTag whole = gmac.tag(42, all, {});
  for (const std::size_t at : {std::size_t{1}, std::size_t{15}, std::size_t{36}, all.size() - 1}) {
    EXPECT_EQ(gmac.tag(42, all.first(at), all.subspan(at)), whole) << at;
  }
}

// Compares with libcrypto's own GMAC, under the key derived from the scope and the KeyUse.
TEST(Gmac, tag__is_aes_128_gmac) {
  // HMAC-SHA-256 with the job key over the label, the KeyUse, and the scope's numbers.
  constexpr std::string_view kLabel = "thalweg wire 1 AES-128-GMAC";
  std::vector<std::byte> context(kLabel.size() + 25);
  ByteWriter writer(context);
  writer.put_text(kLabel);
  writer.put(static_cast<std::uint8_t>(KeyUse::kData));
  writer.put(kScope.sender);
  writer.put(kScope.receiver);
  writer.put(kScope.sender_session);
  writer.put(kScope.receiver_session);
  const JobKey job_key = key_of();
  std::array<unsigned char, 32> derived{};
  ASSERT_NE(HMAC(EVP_sha256(), job_key.bytes().data(), kJobKeySize,
                 reinterpret_cast<const unsigned char*>(context.data()), context.size(),
                 derived.data(), nullptr),
            nullptr);
  Gmac gmac(job_key, kScope, KeyUse::kData);
  Gmac usual(job_key, kScope, KeyUse::kData, Gmac::Code::kOpenSsl);
  for (const std::size_t size : {1U, 15U, 16U, 17U, 36U, 255U, 1400U, 8928U}) {
    SCOPED_TRACE(size);
    const std::vector<std::byte> bytes = data_packet(1, size);
    const std::array<unsigned char, 12> nonce{0x34, 0x12};
    const std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)> cipher(
        EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free);
    KeyedTag expected{};
    std::array<unsigned char, 16> no_text{};
    int ignored = 0;
    ASSERT_EQ(
        EVP_EncryptInit_ex(cipher.get(), EVP_aes_128_gcm(), nullptr, derived.data(), nonce.data()),
        1);
    ASSERT_EQ(EVP_EncryptUpdate(cipher.get(), nullptr, &ignored,
                                reinterpret_cast<const unsigned char*>(bytes.data()),
                                static_cast<int>(bytes.size())),
              1);
    ASSERT_EQ(EVP_EncryptFinal_ex(cipher.get(), no_text.data(), &ignored), 1);
    ASSERT_EQ(
        EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_AEAD_GET_TAG, kKeyedTagSize, expected.data()),
        1);
    EXPECT_EQ(gmac.tag(0x1234, bytes, {}), expected);
    EXPECT_EQ(usual.tag(0x1234, bytes, {}), expected);
  }
}

TEST(Gmac, tag__differs_by_everything_it_depends_on) {
  const std::vector<std::byte> bytes = data_packet(1, 64);
  std::set<KeyedTag> tags;
  const auto add = [&](const JobKey& key, KeyScope scope, KeyUse use, std::uint64_t sequence) {
    tags.insert(Gmac(key, scope, use).tag(sequence, bytes, {}));
  };
  const auto changed = [](auto change) {
    KeyScope scope = kScope;
    change(scope);
    return scope;
  };
  add(key_of(), kScope, KeyUse::kData, 0);
  add(key_of(), kScope, KeyUse::kData, 1);
  add(key_of(), kScope, KeyUse::kData, std::uint64_t{1} << 40);
  add(key_of(), kScope, KeyUse::kControl, 0);
  add(key_of("100102030405060708090a0b0c0d0e0f"), kScope, KeyUse::kData, 0);
  add(key_of(), changed([](KeyScope& s) { s.sender = 5; }), KeyUse::kData, 0);
  add(key_of(), changed([](KeyScope& s) { s.receiver = 3; }), KeyUse::kData, 0);
  add(key_of(), changed([](KeyScope& s) { s.sender_session = 12; }), KeyUse::kData, 0);
  add(key_of(), changed([](KeyScope& s) { s.receiver_session = 12; }), KeyUse::kData, 0);
  add(key_of(), changed([](KeyScope& s) { std::swap(s.sender, s.receiver); }), KeyUse::kData, 0);
  EXPECT_EQ(tags.size(), 10);
}

TEST(Verifier, check_data__accepts_what_was_sealed_in_any_order) {
  Sealer sealer(key_of(), kScope);
  Verifier verifier(kJob, key_of(), kScope);
  for (const std::uint64_t sequence : {5U, 0U, 3U, 4U, 1U, 2U}) {
    EXPECT_EQ(check_data(verifier, sealed_data(sealer, sequence)), Refusal::kNone) << sequence;
  }
  EXPECT_EQ(verifier.data_count(Refusal::kNone), 6);
}

TEST(Verifier, check_data__every_flipped_bit_is_refused) {
  Sealer sealer(key_of(), kScope);
  Verifier verifier(kJob, key_of(), kScope);
  const std::vector<std::byte> good = sealed_data(sealer, 0, 40);
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::vector<std::byte> bad = good;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    DataHeader header;
    if (decode_data_header(bad, header) != WireError::kNone) continue;
    EXPECT_NE(verifier.check_data(bad, header), Refusal::kNone) << bit;
  }
  EXPECT_GT(verifier.data_count(Refusal::kForged), 8 * 40U);
  // None of them moved the window.
  EXPECT_EQ(check_data(verifier, good), Refusal::kNone);
}

// Packets as large as those on the wire, and some with frames of 9000 bytes.
TEST(Verifier, property__a_flipped_bit_of_a_large_packet_is_refused) {
  constexpr std::uint64_t kSeed = 20'261'119;
  Prng prng(kSeed);
  Sealer sealer(key_of(), kScope);
  Verifier verifier(kJob, key_of(), kScope);
  for (std::uint64_t sequence = 0; sequence < 2000; ++sequence) {
    const std::size_t payload = 1 + prng.below(sequence % 50 == 0 ? 8900 : 1400);
    const std::vector<std::byte> good = sealed_data(sealer, sequence, payload);
    std::vector<std::byte> bad = good;
    bad[prng.below(bad.size())] ^= std::byte{1} << prng.below(8);
    DataHeader header;
    if (decode_data_header(bad, header) == WireError::kNone) {
      ASSERT_NE(verifier.check_data(bad, header), Refusal::kNone) << sequence << ", " << kSeed;
    }
    ASSERT_EQ(check_data(verifier, good), Refusal::kNone) << sequence << ", seed " << kSeed;
  }
  EXPECT_GT(verifier.data_count(Refusal::kForged), 1500);
}

TEST(Verifier, check_data__counts_by_reason) {
  Sealer sealer(key_of(), kScope);
  Verifier verifier(kJob, key_of(), kScope, 64);
  const auto packet = sealed_data(sealer, 100);
  EXPECT_EQ(check_data(verifier, packet), Refusal::kNone);
  EXPECT_EQ(check_data(verifier, packet), Refusal::kReplayed);
  EXPECT_EQ(check_data(verifier, sealed_data(sealer, 36)), Refusal::kStale);
  EXPECT_EQ(check_data(verifier, sealed_data(sealer, 37)), Refusal::kNone);
  EXPECT_EQ(check_data(verifier, data_packet(101, 10, false)), Refusal::kKeying);
  EXPECT_EQ(check_data(verifier, data_packet(101, 10)), Refusal::kForged);
  EXPECT_EQ(check_data(verifier, data_packet(101, 10, true, kJob + 1)), Refusal::kJob);
  for (const Refusal reason :
       {Refusal::kReplayed, Refusal::kStale, Refusal::kKeying, Refusal::kForged, Refusal::kJob}) {
    EXPECT_EQ(verifier.data_count(reason), 1) << name_of(reason);
  }
  EXPECT_EQ(verifier.data_count(Refusal::kNone), 2);
}

TEST(Verifier, check_data__of_another_session_is_forged) {
  KeyScope earlier = kScope;
  earlier.receiver_session = 99;
  Sealer sealer(key_of(), earlier);
  Verifier verifier(kJob, key_of(), kScope);
  EXPECT_EQ(check_data(verifier, sealed_data(sealer, 0)), Refusal::kForged);
}

// The sender's session marks its packets, so that old ones are recognized without their key.
TEST(Verifier, check_data__of_another_session_of_the_sender_is_stale) {
  KeyScope now = kScope;
  now.sender_session = kScope.sender_session + 1;
  Sealer sealer(key_of(), kScope);
  Verifier verifier(kJob, key_of(), now);
  EXPECT_EQ(check_data(verifier, sealed_data(sealer, 0)), Refusal::kStale);
}

TEST(SessionProof, prove_session__differs_by_everything_it_depends_on) {
  const std::vector<std::byte> a(96, std::byte{1});
  const std::vector<std::byte> b(96, std::byte{2});
  const std::vector<std::byte> longer(97, std::byte{1});
  const std::vector<std::byte> shorter(95, std::byte{2});
  const std::set<SessionProof> proofs = {
      prove_session(key_of(), 0, a, b),
      prove_session(key_of(), 1, a, b),
      prove_session(key_of(), 0, b, a),
      prove_session(key_of(), 0, a, a),
      prove_session(key_of("100102030405060708090a0b0c0d0e0f"), 0, a, b),
      prove_session(key_of(), 0, longer, shorter),
  };
  EXPECT_EQ(proofs.size(), 6);
  const SessionProof again = prove_session(key_of(), 0, a, b);
  EXPECT_TRUE(proofs.contains(again));
  EXPECT_TRUE(same_secret(again, prove_session(key_of(), 0, a, b)));
  EXPECT_FALSE(same_secret(again, prove_session(key_of(), 1, a, b)));
  EXPECT_FALSE(same_secret(again, std::span(again).first(31)));
}

TEST(Verifier, check__without_a_key_the_job_token_counts) {
  Verifier verifier(kJob, std::nullopt, kScope);
  EXPECT_EQ(check_data(verifier, data_packet(0, 10, false)), Refusal::kNone);
  EXPECT_EQ(check_data(verifier, data_packet(0, 10, false, 0)), Refusal::kJob);
  EXPECT_EQ(check_data(verifier, data_packet(0, 10, true)), Refusal::kKeying);
  EXPECT_EQ(check_control(verifier, control_message(0, false)), Refusal::kNone);
}

TEST(Verifier, check_control__counts_up_by_one) {
  Sealer sealer(key_of(), kScope);
  Verifier verifier(kJob, key_of(), kScope);
  const auto sealed = [&](std::uint64_t sequence) {
    std::vector<std::byte> bytes = control_message(sequence);
    sealer.seal_control(sequence, bytes);
    return bytes;
  };
  EXPECT_EQ(check_control(verifier, sealed(1)), Refusal::kGap);
  EXPECT_EQ(check_control(verifier, sealed(0)), Refusal::kNone);
  EXPECT_EQ(check_control(verifier, sealed(0)), Refusal::kReplayed);
  EXPECT_EQ(check_control(verifier, sealed(2)), Refusal::kGap);
  EXPECT_EQ(check_control(verifier, sealed(1)), Refusal::kNone);
  std::vector<std::byte> forged = sealed(2);
  forged[kControlHeaderSize + 4] ^= std::byte{1};  // a letter of the text
  EXPECT_EQ(check_control(verifier, forged), Refusal::kForged);
  EXPECT_EQ(check_control(verifier, control_message(2, false)), Refusal::kKeying);
  EXPECT_EQ(check_control(verifier, sealed(2)), Refusal::kNone);
}

// A data packet's tag is not accepted for a message, nor a message's tag for a data packet.
TEST(Verifier, check__channels_do_not_mix) {
  Sealer sealer(key_of(), kScope);
  Verifier verifier(kJob, key_of(), kScope);
  std::vector<std::byte> bytes = control_message(0);
  const std::size_t covered = bytes.size() - kKeyedTagSize;
  Gmac wrong(key_of(), kScope, KeyUse::kData);
  const KeyedTag tag = wrong.tag(0, std::span(bytes).first(covered), {});
  std::ranges::copy(tag, bytes.begin() + static_cast<std::ptrdiff_t>(covered));
  EXPECT_EQ(check_control(verifier, bytes), Refusal::kForged);
}

// Compares with the simplest model: a set of all numbers ever accepted.
TEST(ReplayWindow, property__same_as_a_set) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Prng prng(seed);
    const std::size_t size = 64 * (1 + prng.below(5));
    ReplayWindow window(size);
    std::set<std::uint64_t> seen;
    std::uint64_t base = prng.chance(0.2) ? ~std::uint64_t{0} - 100'000 : prng.below(200);
    for (int i = 0; i < 400; ++i) {
      if (prng.chance(0.05)) base += prng.below(3 * size);
      if (prng.chance(0.3)) ++base;
      const std::uint64_t sequence = base - std::min<std::uint64_t>(base, prng.below(2 * size));
      const bool stale =
          !seen.empty() && *seen.rbegin() >= sequence && *seen.rbegin() - sequence >= size;
      const auto expected = stale                     ? ReplayWindow::State::kStale
                            : seen.contains(sequence) ? ReplayWindow::State::kSeen
                                                      : ReplayWindow::State::kFresh;
      ASSERT_EQ(window.state(sequence), expected) << sequence;
      if (expected != ReplayWindow::State::kFresh) continue;
      window.accept(sequence);
      seen.insert(sequence);
    }
  }
}

// A hostile network in front of a verifier: it loses, repeats, reorders, and changes bytes.
TEST(Verifier, property__delivers_each_sealed_packet_at_most_once_and_nothing_else) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Prng prng(seed);
    Sealer sealer(key_of(), kScope);
    Verifier verifier(kJob, key_of(), kScope, 128);
    std::vector<std::vector<std::byte>> sent;
    std::set<std::uint64_t> delivered;
    std::uint64_t answers = 0;
    for (int i = 0; i < 600; ++i) {
      if (sent.empty() || prng.chance(0.5)) {
        sent.push_back(sealed_data(sealer, sent.size(), 1 + prng.below(60)));
      }
      std::vector<std::byte> packet =
          sent[sent.size() - 1 - prng.below(std::min<std::size_t>(sent.size(), 200))];
      const bool changed = prng.chance(0.3);
      if (changed) packet[prng.below(packet.size())] ^= static_cast<std::byte>(1 + prng.below(255));
      DataHeader header;
      if (decode_data_header(packet, header) != WireError::kNone) continue;
      ++answers;
      if (verifier.check_data(packet, header) != Refusal::kNone) continue;
      EXPECT_FALSE(changed);
      EXPECT_TRUE(delivered.insert(header.sequence).second);
    }
    std::uint64_t counted = 0;
    for (int r = 0; r < kRefusalCount; ++r) counted += verifier.data_count(static_cast<Refusal>(r));
    EXPECT_EQ(counted, answers);
    EXPECT_GT(delivered.size(), 100);
  }
}

}  // namespace
}  // namespace thalweg::wire
