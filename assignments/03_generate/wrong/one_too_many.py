# It writes one token too many.
# score: 2  fails: check_1
def generate_cached(model, ids, n):
    fed, past, start = ids, None, 0
    for _ in range(n + 1):
        positions = torch.arange(start, start + fed.shape[1])
        logits, new = model(fed, positions, past)
        if past is not None:
            new = [
                (torch.cat([old[0], rows[0]], 2), torch.cat([old[1], rows[1]], 2))
                for old, rows in zip(past, new, strict=True)
            ]
        past, start = new, start + fed.shape[1]
        fed = logits[:, -1:].argmax(-1)
        ids = torch.cat([ids, fed], dim=1)
    return ids
