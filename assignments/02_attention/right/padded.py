# Queries of nobody stand for the past, so that is_causal puts the mask right.
def cached_attention(q, K, V):
    past = K.shape[2] - q.shape[2]
    q = torch.cat([q.new_zeros(*q.shape[:2], past, q.shape[3]), q], dim=2)
    return torch.nn.functional.scaled_dot_product_attention(q, K, V, is_causal=True)[:, :, past:]
