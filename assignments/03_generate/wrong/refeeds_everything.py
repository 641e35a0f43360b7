# The whole text is fed in each step, without a past: right, and as slow as before.
# score: 6  fails: test_fed
def generate_cached(model, ids, n):
    for _ in range(n):
        logits, _ = model(ids, torch.arange(ids.shape[1]), None)
        ids = torch.cat([ids, logits[:, -1:].argmax(-1)], dim=1)
    return ids
