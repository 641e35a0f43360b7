# The new rows are stored after attention, so the token does not see itself.
# score: 3  fails: test_itself
def step(cache, q, k, v):
    grouped = q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])
    weights = (grouped @ cache["k"].transpose(2, 3) / q.shape[3] ** 0.5).softmax(-1)
    y = (weights @ cache["v"]).reshape(q.shape)
    cache["k"] = torch.cat([cache["k"], k], dim=2)
    cache["v"] = torch.cat([cache["v"], v], dim=2)
    return y
