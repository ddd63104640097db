"""Transformer models with the parameter shapes of their papers, for recording layer tables.

Only shapes and operations matter, so weights are random. Attention uses PyTorch's fused kernel, and
embeddings have dense gradients.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DROPOUT = 0.1


def _heads(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _attend(query: Tensor, key: Tensor, value: Tensor, heads: int, *, causal: bool,
            training: bool) -> Tensor:
    mixed = F.scaled_dot_product_attention(
        _heads(query, heads), _heads(key, heads), _heads(value, heads),
        dropout_p=DROPOUT if training else 0.0, is_causal=causal)
    return mixed.transpose(1, 2).flatten(-2)


class Attention(nn.Module):
    """Multi-head attention from `x` to `memory`, with projections of query, key and value."""

    def __init__(self, width: int, heads: int, *, causal: bool = False):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        mixed = _attend(self.query(x), self.key(memory), self.value(memory), self.heads,
                        causal=self.causal, training=self.training)
        return self.output(mixed)


class FeedForward(nn.Module):
    def __init__(self, width: int, inner: int, activation):
        super().__init__()
        self.activation = activation
        self.expand, self.contract = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.contract(self.activation(self.expand(x)))


class PostNorm(nn.Module):
    """A sub-layer with residual connection, normalized after the addition."""

    def __init__(self, width: int, inner: nn.Module, eps: float):
        super().__init__()
        self.inner, self.norm = inner, nn.LayerNorm(width, eps=eps)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor, *memory: Tensor) -> Tensor:
        return self.norm(x + self.dropout(self.inner(x, *memory)))


class BertLayer(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.attention = PostNorm(width, Attention(width, heads), eps=1e-12)
        self.feed_forward = PostNorm(width, FeedForward(width, 4 * width, F.gelu), eps=1e-12)

    def forward(self, x: Tensor) -> Tensor:
        return self.feed_forward(self.attention(x, x))


class Bert(nn.Module):
    """BERT (Devlin et al. 2018), uncased: the encoder and its pooler, without a task's head."""

    VOCABULARY, POSITIONS, SEGMENTS = 30522, 512, 2

    def __init__(self, layers: int, width: int, heads: int):
        super().__init__()
        self.words = nn.Embedding(self.VOCABULARY, width)
        self.positions = nn.Embedding(self.POSITIONS, width)
        self.segments = nn.Embedding(self.SEGMENTS, width)
        self.norm, self.dropout = nn.LayerNorm(width, eps=1e-12), nn.Dropout(DROPOUT)
        self.layers = nn.ModuleList(BertLayer(width, heads) for _ in range(layers))
        self.pooler = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.positions(places) + self.segments(torch.zeros_like(tokens))
        x = self.dropout(self.norm(x))
        for layer in self.layers:
            x = layer(x)
        return x, torch.tanh(self.pooler(x[:, 0]))


def bert_base() -> Bert:
    return Bert(layers=12, width=768, heads=12)


def bert_large() -> Bert:
    return Bert(layers=24, width=1024, heads=16)


class Gpt2Layer(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.query_key_value, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width, 4 * width, lambda x: F.gelu(x, approximate="tanh"))
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.query_key_value(self.norm1(x)).chunk(3, dim=-1)
        mixed = _attend(query, key, value, self.heads, causal=True, training=self.training)
        x = x + self.dropout(self.output(mixed))
        return x + self.dropout(self.feed_forward(self.norm2(x)))


class Gpt2(nn.Module):
    """GPT-2 small (Radford et al. 2019); the output projection is the word embedding."""

    VOCABULARY, POSITIONS = 50257, 1024

    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12):
        super().__init__()
        self.words = nn.Embedding(self.VOCABULARY, width)
        self.positions = nn.Embedding(self.POSITIONS, width)
        self.dropout = nn.Dropout(DROPOUT)
        self.layers = nn.ModuleList(Gpt2Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.words(tokens) + self.positions(places))
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.words.weight)


class EncoderLayer(nn.Module):
    def __init__(self, width: int, heads: int, inner: int):
        super().__init__()
        self.attention = PostNorm(width, Attention(width, heads), eps=1e-5)
        self.feed_forward = PostNorm(width, FeedForward(width, inner, F.relu), eps=1e-5)

    def forward(self, x: Tensor) -> Tensor:
        return self.feed_forward(self.attention(x, x))


class DecoderLayer(nn.Module):
    def __init__(self, width: int, heads: int, inner: int):
        super().__init__()
        self.attention = PostNorm(width, Attention(width, heads, causal=True), eps=1e-5)
        self.cross = PostNorm(width, Attention(width, heads), eps=1e-5)
        self.feed_forward = PostNorm(width, FeedForward(width, inner, F.relu), eps=1e-5)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        return self.feed_forward(self.cross(self.attention(x, x), memory))


class Transformer(nn.Module):
    """The base model of Vaswani et al. 2017. Both embeddings and the output share one matrix, for a
    vocabulary of 37,000 byte pairs (section 5.1 there: "about 37000 tokens")."""

    VOCABULARY, POSITIONS = 37000, 512

    def __init__(self, layers: int = 6, width: int = 512, heads: int = 8, inner: int = 2048):
        super().__init__()
        self.words = nn.Embedding(self.VOCABULARY, width)
        self.dropout = nn.Dropout(DROPOUT)
        self.encoder = nn.ModuleList(EncoderLayer(width, heads, inner) for _ in range(layers))
        self.decoder = nn.ModuleList(DecoderLayer(width, heads, inner) for _ in range(layers))
        self.register_buffer("waves", self._waves(width))

    def _waves(self, width: int) -> Tensor:
        places = torch.arange(self.POSITIONS).unsqueeze(1)
        angles = places * torch.exp(torch.arange(0, width, 2) * (-math.log(10000) / width))
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)

    def _embed(self, tokens: Tensor) -> Tensor:
        scaled = self.words(tokens) * math.sqrt(self.words.embedding_dim)
        return self.dropout(scaled + self.waves[:tokens.shape[1]])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory = self._embed(source)
        for layer in self.encoder:
            memory = layer(memory)
        x = self._embed(target)
        for layer in self.decoder:
            x = layer(x, memory)
        return F.linear(x, self.words.weight)
