"""`python -m golf.launch.agent …`: torchrun that ends with the process that started it."""

from golf.system import die_with_parent

if __name__ == "__main__":
    # Before torch is imported: a parent that dies during those seconds would otherwise leave torchrun behind.
    die_with_parent()
    from torch.distributed.run import main

    main()
