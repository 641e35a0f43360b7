# The past is what the last pass gave: older rows are lost.
# score: 5  fails: test_past
def generate_cached(model, ids, n):
    fed, past, start = ids, None, 0
    for _ in range(n):
        logits, past = model(fed, torch.arange(start, start + fed.shape[1]), past)
        start += fed.shape[1]
        fed = logits[:, -1:].argmax(-1)
        ids = torch.cat([ids, fed], dim=1)
    return ids
