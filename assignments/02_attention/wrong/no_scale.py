# The scores are not divided by the square root of head_dim.
# score: 5  fails: test_one_query
def cached_attention(q, K, V):
    q_len, kv_len = q.shape[2], K.shape[2]
    seen = torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)
    return (q @ K.transpose(2, 3)).masked_fill(~seen, float("-inf")).softmax(-1) @ V
